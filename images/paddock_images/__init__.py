"""How Paddock's guest images are made and checked; `images/build` and its siblings are the commands."""
