"""JSON text: reading, writing and sizes."""
