// A buffer that is read to find out how fast this machine reads. No model here.
#pragma once
#include <stdexcept>

#include "arena.h"
#include "isa.h"

namespace floorline {

class Reader {
 public:
  Reader(size_t bytes, int threads, const std::string& isa)
      : isa_(find_isa(isa.c_str())), bytes_(bytes), arena_(Arena::padded(bytes)), team_(threads) {
    data_ = arena_.take<uint8_t>(bytes);
  }

  // Write a part of the buffer, which makes its pages real.
  void touch(size_t begin, size_t end) {
    if (begin > end || end > bytes_) throw std::invalid_argument("touch is past the buffer");
    constexpr size_t kRun = size_t{1} << 20;
    const size_t bytes = end - begin;
    const int runs = static_cast<int>((bytes + kRun - 1) / kRun);
    team_.run([&](Team::Member& me) {
      auto write = [&](int first, int last) {
        const size_t from = first * kRun, to = last * kRun;
        std::memset(data_ + begin + from, 0, (to < bytes ? to : bytes) - from);
      };
      me.share(runs, 1, Draw::chunks, write, [] {}, [] {});
    });
  }

  // Read the first `set` bytes round and round in pieces, from `start` on, for `limit_ns` or a
  // little more. Returns: what each piece took, in ns.
  std::vector<int64_t> read(size_t set, size_t piece, size_t start, int64_t limit_ns) {
    if (piece < 256 * static_cast<size_t>(team_.size()))
      throw std::invalid_argument("a piece has at least 256 bytes for each thread");
    if (set > bytes_ || piece > set || start > set - piece)
      throw std::invalid_argument("a piece lies in its set, and the set in the buffer");
    constexpr int kMostPieces = 1 << 14;
    std::vector<int64_t> took_ns(kMostPieces);
    took_ns.resize(isa_->time_pieces(data_, set, piece, start, limit_ns, took_ns.data(),
                                     kMostPieces, team_));
    return took_ns;
  }

 private:
  const Isa* isa_;
  const size_t bytes_;
  Arena arena_;
  uint8_t* data_ = nullptr;
  Team team_;
};

}  // namespace floorline
