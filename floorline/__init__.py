"""The one name that an installed Floorline has: its packages lie in here, beside the starter."""
