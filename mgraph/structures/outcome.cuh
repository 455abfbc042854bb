// What becomes of each key of a run: Plan in plan.py has the same numbers.
#pragma once

enum Outcome : u8 { overridden, inserted, updated, deleted, missing };
