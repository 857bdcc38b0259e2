"""From images to feature vectors: decoding, an ONNX backbone, R-MAC and other pooling."""
