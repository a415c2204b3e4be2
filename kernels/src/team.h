// Threads that run one function together and share out the items of its phases. No model here.
//
// Why no member reads what another has not finished writing:
//
// Members write plain memory (the job, activations, the KV store). Only the atomics below put those
// writes in order, always in one way: a thread writes, then changes an atomic with `release`;
// another thread reads that change with `acquire`, and from then on sees what the first one wrote
// before. A read-modify-write in between (fetch_add, compare_exchange) does not break the chain.
//
// 1. The job. run() writes job_, context_ and first_phase_, and stores kOpen in inside_ (release).
//    A worker reads the three only after enter() has raised inside_ (acquire). Nobody enters while
//    inside_ is below kOpen, that is outside a region.
// 2. The items of a phase, which later phases read. A member that has done items adds their number
//    to done_ (release and acquire). Whoever brings done_ to the count has therefore seen the items
//    of all; it runs `then`, and opens the next phase by storing phase_ (release). Everybody enters
//    that phase by reading phase_ (acquire), and so sees all items and what `then` wrote.
// 3. The counters. open() sets done_ and the ranges back with relaxed stores. Nobody can still add
//    to done_ for the old phase: the sum reached the count only because all had added. Whoever
//    draws in the new phase has read phase_ (acquire), so it sees them set back. Whoever still
//    draws in the old phase finds another phase in the range's word, or its compare_exchange fails,
//    because the word holds the phase too. So an item is drawn once, in its own phase. That a draw
//    acquires adds nothing to this: relaxed would do.
// 4. The end. run() takes kOpen away so that nobody enters any more (relaxed: it publishes
//    nothing), then waits until inside_ is 0 (acquire). A worker lowers inside_ (release) after its
//    last look at the job. So the job may go out of scope, and the next run() may write a new one
//    and read phase_ relaxed: nobody is left who changes it.
// 5. Waking. region_ only wakes. A worker that misses a region sleeps until the next one, and the
//    others do its items. region_ is raised after inside_ is open, and its changes are sequentially
//    consistent, so a worker that wakes finds the region open or over. ~Team() sets ending_ before
//    it raises region_, so a worker that wakes for that sees it.
// 6. processor_ is a hint: an old value costs time, no more.
//
// One region at a time: the caller sees to it (NativeModel holds busy_ meanwhile).
// kernels/sanitize.sh runs kernels/tools/team_driver.cpp under ThreadSanitizer;
// tests/integration/test_team.py weakens each order that 1, 2 and 4 need, and the driver must
// notice.
#pragma once
#if defined(__linux__)
#include <sched.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace floorline {

// How much of a range is drawn at a time. A draw interrupts a stream of reads, so items of even
// length are drawn by halves of what is left; items that may differ in length, a chunk at a time.
enum class Draw { chunks, halves };

// One parallel region a step. The caller is member 0; a worker joins as soon as it is awake, even
// in the middle. A phase waits only for members that have drawn items of it, so a worker that wakes
// late delays nothing. The end of the region waits for all that have joined, because they read its
// job.
class Team {
 public:
  class Member;

  static constexpr int kMaxSize = 256;

  // Raises std::invalid_argument for a size that is not 1 to kMaxSize.
  explicit Team(int size) : size_(checked(size)), ranges_(size), processor_(size) {
    for (int member = 1; member < size; ++member)
      workers_.emplace_back([this, member] { work(member); });
  }

  ~Team() {
    ending_.store(true, std::memory_order_relaxed);
    region_.fetch_add(1);
    region_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return size_; }

  // Run job(member) on the caller and on the workers that wake before it ends.
  template <class F>
  void run(const F& job) {
    context_ = &job;
    job_ = [](const void* context, Member& me) { (*static_cast<const F*>(context))(me); };
    first_phase_ = phase_.load(std::memory_order_relaxed);
    note_processor(0);
    inside_.store(kOpen, std::memory_order_release);
    region_.fetch_add(1);
    region_.notify_all();
    Member me(*this, 0);
    job(me);
    inside_.fetch_sub(kOpen, std::memory_order_relaxed);
    wait_while([this] { return inside_.load(std::memory_order_acquire) != 0; }, [] {});
  }

 private:
  static constexpr int kSpins = 1024;    // about ten microseconds; then others may have the core
  static constexpr int kOpen = 1 << 20;  // more than there can be workers

  // What is left of the items that one member begins with: phase << 32 | how many are taken.
  struct alignas(64) Range {
    std::atomic<uint64_t> taken{0};
  };

  template <class F, class G>
  static void wait_while(F condition, G meanwhile) {
    for (int spins = 0; condition(); ++spins) {
      meanwhile();
      if (spins < kSpins) pause();
      else std::this_thread::yield();
    }
  }

  static int checked(int size) {
    if (size < 1 || size > kMaxSize)
      throw std::invalid_argument("threads must be 1 to " + std::to_string(kMaxSize) + ", not " +
                                  std::to_string(size));
    return size;
  }

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  int first_of(int member, int count) const {
    return static_cast<int>(int64_t{count} * member / size_);
  }

  // Draw from a member's range until it is empty or the phase is over. items() gets at most `chunk`
  // items at a time. Returns: items done.
  template <class F>
  int draw(int member, uint32_t phase, int count, int chunk, Draw draws, F items) {
    const int begin = first_of(member, count), length = first_of(member + 1, count) - begin;
    std::atomic<uint64_t>& range = ranges_[member].taken;
    int done = 0;
    uint64_t word = range.load(std::memory_order_acquire);
    while (word >> 32 == phase) {
      const int taken = static_cast<int>(word & UINT32_MAX), left = length - taken;
      if (left <= 0) break;
      const int much = draws == Draw::halves ? std::max(left / 2, chunk) : chunk;
      const int n = std::min(left, much);
      if (!range.compare_exchange_weak(word, word + n, std::memory_order_acquire)) continue;
      for (int i = begin + taken, end = i + n; i < end; i += chunk)
        items(i, std::min(i + chunk, end));
      done += n;
      word = range.load(std::memory_order_acquire);
    }
    return done;
  }

  // Always inlined: the linker might otherwise keep one copy, with instructions of an instruction
  // set that this processor does not have.
  [[gnu::always_inline]] void open(uint32_t phase) {
    done_.store(0, std::memory_order_relaxed);
    for (Range& range : ranges_)
      range.taken.store(uint64_t{phase} << 32, std::memory_order_relaxed);
    phase_.store(phase, std::memory_order_release);
  }

  // Move to another processor if a member before this one is on the same. The system often wakes a
  // thread on the processor of its waker, and separates the two only some hundred steps later.
  void move_apart([[maybe_unused]] int member) {
#if defined(__linux__)
    cpu_set_t allowed, free;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    free = allowed;
    bool shared = false;
    for (int other = 0; other < member; ++other) {
      const int there = processor_[other].load(std::memory_order_relaxed);
      shared |= there == sched_getcpu();
      if (there >= 0) CPU_CLR(there, &free);
    }
    if (shared && CPU_COUNT(&free) > 0) {
      sched_setaffinity(0, sizeof free, &free);
      sched_setaffinity(0, sizeof allowed, &allowed);
    }
    note_processor(member);
#endif
  }

  void note_processor([[maybe_unused]] int member) {
#if defined(__linux__)
    processor_[member].store(sched_getcpu(), std::memory_order_relaxed);
#endif
  }

  // Join the region if it is not over.
  bool enter() {
    int inside = inside_.load(std::memory_order_relaxed);
    while (inside >= kOpen)
      if (inside_.compare_exchange_weak(inside, inside + 1, std::memory_order_acquire)) return true;
    return false;
  }

  void work(int member);

  const int size_;
  void (*job_)(const void*, Member&) = nullptr;
  const void* context_ = nullptr;
  uint32_t first_phase_ = 0;
  std::atomic<bool> ending_{false};
  std::vector<Range> ranges_;
  std::vector<std::atomic<int>> processor_;  // where each member was when the region began
  alignas(64) std::atomic<unsigned> region_{0};
  alignas(64) std::atomic<int> inside_{0};  // workers in the region, and kOpen until it ends
  alignas(64) std::atomic<uint32_t> phase_{0};
  alignas(64) std::atomic<int> done_{0};  // items of this phase
  std::vector<std::thread> workers_;
};

// One thread in a region. All members pass the same phases in the same order.
class Team::Member {
 public:
  Member(Team& team, int index) : team_(team), index_(index), phase_(team.first_phase_) {}

  int team_size() const { return team_.size_; }
  int index() const { return index_; }

  // Give the first of this member's own items if there are `count`; with next = 1, the end of them.
  int first_of(int count, int next = 0) const { return team_.first_of(index_ + next, count); }

  // Run items(first, last) until all of [0, count) are done, at most `chunk` at a time, and then
  // run `then` once. A member begins with its own range and goes on to what others have left of
  // theirs. When nothing is left to draw it calls `idle`, again and again until the phase is over.
  template <class F, class G, class H>
  void share(int count, int chunk, Draw draws, F items, G idle, H then) {
    if (count == 0) return;
    const uint32_t phase = phase_++;
    if (team_.phase_.load(std::memory_order_acquire) != phase) return;  // others have done all
    int done = 0;
    for (int i = 0; i < team_.size_; ++i)
      done += team_.draw((index_ + i) % team_.size_, phase, count, chunk, draws, items);
    idle();
    if (done > 0 && team_.done_.fetch_add(done, std::memory_order_acq_rel) + done == count) {
      then();
      team_.open(phase + 1);
    } else {
      wait_while([&] { return team_.phase_.load(std::memory_order_acquire) == phase; }, idle);
    }
  }

 private:
  Team& team_;
  const int index_;
  uint32_t phase_;
};

inline void Team::work(int member) {
  for (unsigned seen = 0;;) {
    for (int spins = 0; spins < kSpins && region_.load() == seen; ++spins) pause();
    region_.wait(seen);
    seen = region_.load();
    if (ending_.load(std::memory_order_relaxed)) return;
    move_apart(member);
    if (!enter()) continue;
    Member me(*this, member);
    job_(context_, me);
    inside_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace floorline
