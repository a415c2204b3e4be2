"""Unpacks weights that a checkpoint's maker has quantised: GPTQ, AWQ, FP8 and their like."""
