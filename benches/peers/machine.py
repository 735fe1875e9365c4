"""Prints the GPU and the versions of the software as one JSON line. Fails if PyTorch or the GPU is missing."""

from common import emit, machine, parser, require_torch

require_torch(parser(__doc__).parse_args())
emit(**machine())
