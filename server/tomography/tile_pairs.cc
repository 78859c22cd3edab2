#include "server/tomography/tile_pairs.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <pthread.h>
#include <thread>

#include "gpu/base/mutex.h"
#include "server/base/exception_to_status.h"

namespace octavo::tomography {
namespace {

constexpr double kSmallPart = 0.5;  // of a tile's largest overlap: those of corners are left out
constexpr int64_t kMostExtent = 512, kMostPixels = 256 << 10;  // of an overlap that are compared
constexpr int64_t kMostThreads = 4;

int64_t Rounded(double value) { return static_cast<int64_t>(std::floor(value + 0.5)); }

/// The middle `most` of `count`.
void Limit(int64_t most, int64_t* first, int64_t* count) {
  if (*count <= most) return;
  *first += (*count - most) / 2;
  *count = most;
}

/// The first error of several threads, which end with it.
class FirstError {
 public:
  void Set(const absl::Status& status) {
    MutexLock lock(mutex_);
    if (status_.ok()) status_ = status;
  }
  absl::Status status() const {
    MutexLock lock(mutex_);
    return status_;
  }

 private:
  mutable Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

TilePart TilePair::Middle() const {
  TilePart part = {.column = std::max<int64_t>(0, column),
                   .row = std::max<int64_t>(0, row),
                   .columns = columns,
                   .rows = rows};
  Limit(kMostExtent, &part.column, &part.columns);
  Limit(std::max<int64_t>(1, kMostPixels / part.columns), &part.row, &part.rows);
  return part;
}

TilePart TilePair::OfSecond(const TilePart& of_first) const {
  TilePart part = of_first;
  part.column -= column;
  part.row -= row;
  return part;
}

std::vector<TilePair> PairsOf(const std::vector<TilePlace>& places, int64_t least_shared) {
  std::vector<TilePair> pairs;
  std::vector<int64_t> largest(places.size(), 0);
  for (size_t i = 0; i < places.size(); ++i) {
    for (size_t j = i + 1; j < places.size(); ++j) {
      const TilePlace &a = places[i], &b = places[j];
      TilePair pair = {.first = i,
                       .second = j,
                       .column = Rounded(b.first_column - a.first_column),
                       .row = Rounded(b.first_row - a.first_row)};
      pair.columns =
          std::min(a.columns, b.columns + pair.column) - std::max<int64_t>(0, pair.column);
      pair.rows = std::min(a.rows, b.rows + pair.row) - std::max<int64_t>(0, pair.row);
      if (pair.columns < std::min({least_shared, a.columns, b.columns}) ||
          pair.rows < std::min({least_shared, a.rows, b.rows}))
        continue;
      for (const size_t tile : {i, j})
        largest[tile] = std::max(largest[tile], pair.columns * pair.rows);
      pairs.push_back(pair);
    }
  }
  std::erase_if(pairs, [&](const TilePair& pair) {
    const auto small = [&](size_t tile) {
      return static_cast<double>(pair.columns * pair.rows) <
             kSmallPart * static_cast<double>(largest[tile]);
    };
    return small(pair.first) && small(pair.second);
  });
  return pairs;
}

absl::Status ForPairs(size_t count, const std::function<absl::Status(size_t)>& f) {
  const auto processors = static_cast<int64_t>(std::thread::hardware_concurrency());
  const int64_t threads = std::clamp<int64_t>(
      processors / 2, 1, std::clamp<int64_t>(static_cast<int64_t>(count), 1, kMostThreads));
  std::atomic<size_t> next = 0;
  FirstError error;
  std::vector<std::jthread> workers;
  for (int64_t i = 0; i < threads; ++i) {
    workers.emplace_back([&] {
      pthread_setname_np(pthread_self(), "oct-tiles");
      for (;;) {
        const size_t at = next++;
        if (at >= count) return;
        const absl::Status status = base::ExceptionToStatus([&] { return f(at); });
        if (status.ok()) continue;
        error.Set(status);
        next = count;
        return;
      }
    });
  }
  workers.clear();  // joins
  return error.status();
}

}  // namespace octavo::tomography
