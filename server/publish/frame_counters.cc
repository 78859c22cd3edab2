#include "server/publish/frame_counters.h"

namespace octavo::publish {

void FrameCounters::Published(model::Product product, double latency_seconds) {
  MutexLock lock(mutex_);
  ++published_[Name(product)];
  if (product != model::Product::kEvent) latency_[Name(product)].Add(latency_seconds);
}

void FrameCounters::Sent(model::Product product) {
  MutexLock lock(mutex_);
  ++sent_[Name(product)];
}

void FrameCounters::Dropped(model::Product product, const std::string& why) {
  MutexLock lock(mutex_);
  ++dropped_[{Name(product), why}];
}

void FrameCounters::Cut(const std::string& reason) {
  MutexLock lock(mutex_);
  ++cut_[reason];
}

void FrameCounters::AddTo(model::Stats* stats) {
  MutexLock lock(mutex_);
  stats->frames_published = published_;
  stats->frames_sent = sent_;
  stats->frames_dropped = dropped_;
  stats->streams_cut = cut_;
  stats->frame_latency_seconds = latency_;
}

}  // namespace octavo::publish
