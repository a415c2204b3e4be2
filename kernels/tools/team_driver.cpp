// Runs teams through many regions and phases over plain memory, for ThreadSanitizer to watch.
//
//   team_driver REGIONS     regions for each of several teams
//
// Each phase reads what the phase before it wrote, whoever wrote it, and every result is held
// against the same sum done by one thread. Prints how many items were done, and how many of them by
// workers; fails where a result differs or where no worker has done any.
#include "team.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>

using floorline::Draw;
using floorline::Team;

namespace {

constexpr int kMaxItems = 200;

struct Phase {
  int count, chunk;
  Draw draws;
};

// What the members share: plain memory, which the team alone keeps in order.
struct Shared {
  std::vector<Phase> phases;
  std::vector<std::vector<uint64_t>> values;  // [phase][item]
  std::vector<uint64_t> totals;               // [phase], written by `then`
};

uint64_t value_of(const Shared& s, size_t phase, int item) {
  uint64_t x = 0x9e3779b97f4a7c15u * static_cast<uint64_t>(item + 1);
  if (phase == 0) return x;
  const std::vector<uint64_t>& before = s.values[phase - 1];
  x ^= s.totals[phase - 1];
  return before.empty() ? x : x + before[static_cast<size_t>(item) * 7 % before.size()];
}

uint64_t total_of(const std::vector<uint64_t>& values) {
  uint64_t total = 0;
  for (uint64_t value : values) total += value;
  return total;
}

Shared random_region(std::mt19937& random) {
  auto below = [&](int limit) { return static_cast<int>(random() % limit); };
  Shared s;
  for (int i = below(10); i >= 0; --i) {
    const int count = below(4) == 0 ? below(4) : below(kMaxItems);  // often fewer than members
    s.phases.push_back({count, 1 + below(9), below(2) ? Draw::chunks : Draw::halves});
    s.values.emplace_back(count);
  }
  s.totals.resize(s.phases.size());
  return s;
}

// Some items take long, so that others take over what is left of a member's own.
void dawdle(uint64_t value) {
  if (value % 61 == 0) std::this_thread::yield();
  if (value % 17 != 0) return;
  for (int i = 0; i < 300; ++i) asm volatile("");
}

class Run {
 public:
  explicit Run(Team& team) : team_(team) {}

  void region(Shared s) {
    const std::thread::id caller = std::this_thread::get_id();
    team_.run([&](Team::Member& me) {
      const bool worker = std::this_thread::get_id() != caller;
      for (size_t p = 0; p < s.phases.size(); ++p) {
        const Phase& phase = s.phases[p];
        auto items = [&](int first, int last) {
          for (int i = first; i < last; ++i) dawdle(s.values[p][i] += value_of(s, p, i));
          // Relaxed, so that counting puts nothing in order.
          (worker ? by_workers : by_caller).fetch_add(last - first, std::memory_order_relaxed);
        };
        me.share(
            phase.count, phase.chunk, phase.draws, items, [] {},
            [&] { s.totals[p] = total_of(s.values[p]); });
      }
    });
    check(s);
  }

  std::atomic<long> by_caller{0}, by_workers{0};

 private:
  static void check(const Shared& found) {
    Shared s = found;
    for (size_t p = 0; p < s.phases.size(); ++p) {
      for (int i = 0; i < s.phases[p].count; ++i) s.values[p][i] = value_of(s, p, i);
      s.totals[p] = s.phases[p].count == 0 ? 0 : total_of(s.values[p]);
      if (s.values[p] == found.values[p] && s.totals[p] == found.totals[p]) continue;
      std::fprintf(stderr, "team_driver: phase %zu has other results than one thread gives\n", p);
      std::exit(1);
    }
  }

  Team& team_;
};

}  // namespace

int main(int count, char** arguments) {
  const int regions = count == 2 ? std::atoi(arguments[1]) : 0;
  if (regions < 1) {
    std::fprintf(stderr, "usage: team_driver REGIONS\n");
    return 2;
  }
  std::mt19937 random(1);
  long items = 0, by_workers = 0;
  for (int size : {1, 2, 3, 4, 7}) {
    Team team(size);
    Run run(team);
    for (int i = 0; i < regions; ++i) {
      run.region(random_region(random));
      // Now and then the workers fall asleep; mostly the next region begins while some still leave.
      if (i % 16 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    by_workers += run.by_workers;
    items += run.by_workers + run.by_caller;
  }
  std::printf("%ld items, %ld of them by workers\n", items, by_workers);
  return by_workers > 0 ? 0 : 1;
}
