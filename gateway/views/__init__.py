"""Live views: who speaks for which, what their pages offer, and the model's calls into them."""
