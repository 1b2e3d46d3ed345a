"""Export of translation models to Hugging Face transformers, CTranslate2, ONNX and the browser.

Each format has a module, which writes a folder and translates with it; `run` compares the two before it puts the folder
in place.
"""
