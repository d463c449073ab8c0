"""Who is there and how bytes get there."""
