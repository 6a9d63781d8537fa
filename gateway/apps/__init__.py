"""Packs the folder of a web app into one HTML file, with the view runtime first in its head."""

from gateway.apps.files import INDEX as INDEX
from gateway.apps.files import media_type as media_type
from gateway.apps.files import own_file as own_file
from gateway.apps.files import own_files as own_files
from gateway.apps.pack import CARRIED as CARRIED
from gateway.apps.pack import FRAME_WORDS as FRAME_WORDS
from gateway.apps.pack import PARTS as PARTS
from gateway.apps.pack import PERMISSIONS as PERMISSIONS
from gateway.apps.pack import STORAGE_PART as STORAGE_PART
from gateway.apps.pack import UNGUESSED as UNGUESSED
from gateway.apps.pack import find_page as find_page
from gateway.apps.pack import pack as pack
from gateway.apps.pack import size_note as size_note
from gateway.apps.pack import with_parts as with_parts
from gateway.apps.pack import with_snapshot as with_snapshot
from gateway.apps.shell import FRAME as FRAME
from gateway.apps.shell import PAGED as PAGED
from gateway.apps.shell import SHELL as SHELL
from gateway.apps.shell import make_shell as make_shell
from gateway.apps.shell import page_config as page_config
