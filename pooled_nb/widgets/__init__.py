"""What a person sees of a room. Makes no decisions."""
