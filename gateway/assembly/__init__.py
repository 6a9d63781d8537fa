"""What the composition root builds from: each module assembles one part of the gateway from its configuration."""
