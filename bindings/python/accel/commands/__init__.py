"""Commands of the reference that programs call from Python. The others are those of the program `accel`."""
