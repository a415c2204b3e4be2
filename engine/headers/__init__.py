"""What files say of themselves at their head, checked before anything is made of it."""
