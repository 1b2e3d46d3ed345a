"""Records of inspection (attention, predictions, walks), read and shown as pages, pictures, tables and text.

Recording is in `headwise.pytorch.inspect` and `headwise.models`; nothing in `headwise.core` stores attention weights.
"""

# Names that keep their meaning and their parameters (docs/reference/stable-names.md).
STABLE = (
    *("record.AttentionRecord", "record.Axis", "record.Word", "record.Patches", "record.Times"),
    *("notebook.AttentionView", "notebook.AttentionView.show", "notebook.Inspection", "notebook.Inspection.show"),
    *("record.Trace", "record.Position", "record.Candidate", "record.BeamNode", "record.Attribution"),
    *("record.Attribution.gap", "record.Walk", "record.Walk.step", "record.WalkStep", "record.Prediction"),
    *("record.WalkRecord", "record.StackFigure", "alignment.AlignmentHead"),
    *("readings.head_average", "readings.layer_average", "readings.between_words", "readings.clearest_head"),
    *("readings.alignment_row", "readings.entropy", "readings.distance", "readings.distance_from_diagonal"),
    *("readings.Rollout", "readings.rollout", "picture.save_attention", "terminal.heat_map"),
)
