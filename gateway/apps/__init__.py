"""A folder of a normal web app becomes one HTML file, with the view runtime first in its head."""

from gateway.apps.pack import pack as pack
from gateway.apps.pack import with_snapshot as with_snapshot
