// Outcomes of the keys of a run, with the numbers of Plan in plan.py.
#pragma once

enum Outcome : u8 { overridden, inserted, updated, deleted, missing };
