"""What the chapters of the tutorial use (`docs/tutorial/`): checked exercises, the library's source, sizes.

A chapter is a text notebook: each fence with the language `python` is a cell. It begins with

    from headwise.tutorial import check, settings, show_source, solution

    size = settings(full={"updates": 600}, small={"updates": 4})

and then uses `size.updates`. The environment variable `HEADWISE_TUTORIAL=small` selects the small sizes, with which all
cells take seconds and the results mean nothing; otherwise the full ones hold.

`check("1.1", answer)` says whether an answer is right, `solution("1.1")` prints the answer, and `show_source(object)`
displays the code of a class or function.
"""

from headwise.tutorial.checking import check_answer as check
from headwise.tutorial.checking import print_solution as solution
from headwise.tutorial.sizes import chapter_settings as settings
from headwise.tutorial.source_code import show_source

__all__ = ["check", "settings", "show_source", "solution"]
