"""Flip one condition of a judging module at a time, and see whether its tests notice: `make mutants`.

An own runner of a few small modules. Both well-kept ones were looked into (mutmut 3.8, cosmic-ray 8.7), and
neither asks the question:

- mutmut changes the bodies of functions only; half of what decides here are thresholds, tables of rules and
  borders of releases at the top of modules and in dataclasses. It has no sample and no seed.
- cosmic-ray writes each mutant into the working tree, and starts one pytest a mutant with one command for all
  modules: four seconds of imports and the whole mirrored suite each time, an hour for 200.
- Both change whatever there is (arithmetic, strings, decorators), and neither knows confidences, severities
  or releases.

Here the conditions of the modules in `table` are listed from their syntax trees (`conditions`), a sample of
them is drawn with a printed seed, each is put into a copy of the tree, and a process forked from one that has
torch and pytest loaded already (`forks`) runs those mirrored tests that reach the changed line (`tracing`).
Mutants that change nothing are listed in equivalent.toml with a reason each.
"""
