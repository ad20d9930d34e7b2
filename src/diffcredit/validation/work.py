"""The evaluations that a part of the validation needs, and the images that were kept of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from diffcredit.execution import Task
from diffcredit.properties import Images
from diffcredit.study.recipe import Recipe


@dataclass(frozen=True, eq=False)
class PartWork:
    """Evaluations of one recipe that a part needs.

    ``undecided`` is the most that may be added once another part is there. The part shows images of the evaluations
    ``pictured``.
    """

    recipe: Recipe
    tasks: Sequence[Task]
    what: str
    undecided: int = 0
    pictured: Sequence[Task] = ()

    def missing(self) -> list[Task]:
        """Return the tasks that are not in the ledger."""
        done = self._done()
        return [task for task in self.tasks if task.key not in done]

    def without_images(self) -> list[Task]:
        """Return the pictured tasks that are done but have no images here: these were not kept, or are lost."""
        keeper = self.recipe.recorded_keeper() if self.pictured else None
        if keeper is None:
            return []
        done = self._done()
        return [task for task in self.pictured if task.key in done and "images" not in keeper.kept(task)]

    def _done(self) -> set[tuple[str, int]]:
        return {each.key for each in self.recipe.evaluations(status="done")}


def keeping_images(recipe: Recipe, evaluations: int) -> Recipe:
    """Return the same recipe, with images kept of its evaluations."""
    return recipe.study.recipe_with(recipe.section, evaluations, keep="images")


def kept_images(recipe: Recipe, task: Task) -> Images | None:
    """Return the images that were kept of one evaluation; None where there are none."""
    keeper, prepared = recipe.recorded_keeper(), recipe.study.prepared
    found = None if keeper is None else keeper.find(task, prepared.extractors, prepared.load)
    return None if found is None else found.images
