// One table of entry points for each instruction set that this build has.
#pragma once
#include <string>
#include <vector>

#include "model.h"
#include "team.h"

namespace floorline {

struct Isa {
  const char* name;
  // Run one step. The batch is already checked, and nothing is allocated.
  void (*step)(const Model&, const KVStore&, const Batch&, Scratch&, Team&);
  // out[rows][matrix.rows] = x times the matrix, as a step would do it.
  void (*product)(const Matrix&, const Activations&, int rows, bool integer_activations, float* out,
                  Team&);
  // Read memory once as a step reads weights, and do nothing else: a step's floor.
  uint64_t (*read)(const uint8_t* data, size_t bytes, Team&);
};

// Give the entry points by name; an empty name means the fastest that this processor runs.
// Returns null if the build or the processor does not have it.
const Isa* find_isa(const char* name);

// Name all that this processor runs, the fastest first.
std::vector<std::string> isa_names();

}  // namespace floorline
