"""What a page in a view gets: how late its fetches are, and how long large bodies hold others up."""
