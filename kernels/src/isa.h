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
                  const Room&, Team&);
  // Read memory once as a step reads weights, and do nothing else: a step's floor.
  uint64_t (*read)(const uint8_t* data, size_t bytes, Team&);
  // Read a working set round and round in pieces, from `start` on, and note what each piece took,
  // until there are `capacity` of them or `limit_ns` are over. Returns: how many there are.
  int (*time_pieces)(const uint8_t* data, size_t set, size_t piece, size_t start, int64_t limit_ns,
                     int64_t* took_ns, int capacity, Team&);
};

// Give the entry points by name; an empty name means the fastest that this processor runs.
// Returns null if the build or the processor does not have it.
const Isa* find_isa(const char* name);

// Name all that this processor runs, the fastest first.
std::vector<std::string> isa_names();

}  // namespace floorline
