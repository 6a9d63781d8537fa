"""Live views: their proofs, the tools that their pages offer, and the model's calls of these."""
