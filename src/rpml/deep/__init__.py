"""End-to-end training: sRPML on images, and the methods it is compared with."""
