"""Feature vectors of images: decoding, an ONNX backbone, R-MAC and other pooling."""
