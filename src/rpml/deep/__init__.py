"""End to end: sRPML that trains a network on images, and the methods it is compared with."""
