"""ELMo inside other libraries: scikit-learn, spaCy, flair and sentence-transformers, one file each.

Each file imports its library when it is imported itself; where that is missing, the error names the line to install it.
"""
