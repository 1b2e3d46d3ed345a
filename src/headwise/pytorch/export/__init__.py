"""Models written for other programs: Hugging Face, CTranslate2, ONNX."""
