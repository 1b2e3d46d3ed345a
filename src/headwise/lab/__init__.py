"""Experiments and teaching: the study of claims, tables of runs, the tutorial, the demo. Imported by the command line
alone.
"""
