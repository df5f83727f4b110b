"""What is read of a running server, on a node where the workbench is not installed.

The standard library only, in Python 3.9's syntax: `workbench.attach` uses this package, and
``make collector`` packs it, with `workbench.evidence.casefile`, into one file that runs anywhere.
py-spy is used where it is found, nvidia-smi where there is a GPU. Nothing is changed in what is
looked at: py-spy pauses a process for its dump, and that is all.
"""
