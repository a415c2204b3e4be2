"""What a plan is asked: the options, the model that they name, the devices. Nothing is computed."""
