"""Pictures of environments: the episode so far as an image of bytes. The modules `pictures_…` draw them.

Importing this module registers all of them.
"""

from riskpath.envs import pictures_of_cars as pictures_of_cars
from riskpath.envs import pictures_of_places as pictures_of_places
from riskpath.envs import pictures_over_time as pictures_over_time
from riskpath.envs.drawing import COLOURS, FOOTER, MARGIN, Episode, has_picture, picture

__all__ = ["COLOURS", "FOOTER", "MARGIN", "Episode", "has_picture", "picture"]
