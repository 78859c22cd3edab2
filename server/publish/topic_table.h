#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "server/model/frame.h"
#include "server/model/subscription.h"
#include "server/publish/topic.h"

namespace octavo::publish {

/// The scans and their topics: the sequence numbers of each topic, and its last frames, for resume
/// and for a first picture. Images that are remembered take at most a fixed number of bytes
/// together; the oldest are forgotten first, except the last one of each topic of a running scan,
/// unless these alone take twice as much. The rest of ended scans, mainly their events, is bounded
/// too: the scans that ended first are forgotten. So are topics without frames. Not thread-safe;
/// the publisher's lock guards it.
class TopicTable {
 public:
  static constexpr size_t kMostTopics = 1024;  // of a scan, without remembered frames
  struct Scan;
  struct Topic;
  // Topics of the remembered images, oldest image first.
  using Order = std::list<std::pair<Scan*, Topic*>>;
  struct Topic {
    uint64_t next_sequence = 0;
    uint64_t used = 0;                   // when last, as Scan::uses
    std::deque<model::FramePtr> recent;  // oldest first; volume frames without payload
    std::deque<Order::iterator> order;   // of each image in `recent`
    int64_t recent_bytes = 0;
  };
  struct Scan {
    std::map<std::string, std::string> labels;
    Show show;
    bool ended = false;
    int64_t ended_ns = 0;
    std::list<std::string>::iterator place;  // among those that have ended
    std::map<TopicKey, Topic> topics;
    int64_t bytes = 0;  // about; without images
    // A new topic begins here, so that one that was forgotten never counts backwards.
    uint64_t first_sequence = 0;
    size_t most_topics = kMostTopics;  // then those without frames that were not used lately go
    uint64_t uses = 0;                 // of all topics
  };

  TopicTable(int64_t most_remembered_bytes, int64_t most_ended_bytes)
      : most_remembered_bytes_(most_remembered_bytes), most_ended_bytes_(most_ended_bytes) {}

  void Start(const std::string& scan, const std::map<std::string, std::string>& labels,
             const Show& show);
  /// Later subscribers find an ended scan.
  void End(const std::string& scan, int64_t now_ns);
  /// Forgets the scans that ended long ago, and the first of those that take too many bytes
  /// together; never the last one that ended for its bytes.
  void ForgetOld(int64_t now_ns);
  Scan* Find(const std::string& scan);  // null: not known (any more)
  bool Has(const std::string& scan) const { return scans_.count(scan) > 0; }

  /// Gives the frame the topic's next sequence number, and remembers it.
  model::FramePtr Add(Scan& scan, const TopicKey& key, model::Frame frame);
  /// Counts a frame that the server did not make; returns its number.
  uint64_t Skip(Scan& scan, const TopicKey& key) { return TopicOf(scan, key).next_sequence++; }

 private:
  Topic& TopicOf(Scan& scan, const TopicKey& key);
  void ForgetEmptyTopics(Scan& scan);
  void Count(Scan& scan, int64_t bytes);
  void Remember(Scan& scan, Topic& topic, const model::FramePtr& frame);
  void ForgetOldest(Scan& scan, Topic& topic);
  /// Forgets images while all take more than `most`; `last`: also the last one of a topic.
  void ForgetImages(int64_t most, bool last);

  const int64_t most_remembered_bytes_, most_ended_bytes_;
  std::map<std::string, Scan> scans_;
  std::list<std::string> ended_;  // in the order of their ends
  int64_t ended_bytes_ = 0;       // of these scans, without images
  Order order_;
  int64_t remembered_bytes_ = 0;
};

/// Whether the subscription selects this scan, by its name or by labels.
bool Matches(const model::SubscribeSpec& spec, const std::string& name,
             const TopicTable::Scan& scan);
/// Whether the subscriber gets the frames of the scan's volumes without their data, because it
/// reads them. Volumes that might have gone by then come with their data; and small ones, whose
/// read takes longer.
bool IsRead(const model::SubscribeSpec& spec, const Show& show);
/// The topics of the scan that the subscription names, each once.
std::vector<TopicKey> KeysOf(const model::SubscribeSpec& spec, const TopicTable::Scan& scan);

}  // namespace octavo::publish
