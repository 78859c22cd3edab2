#include "server/storage/history/history_row.h"

namespace octavo::storage {

const char* Name(HistoryKind kind) {
  switch (kind) {
    case HistoryKind::kScan: return "scan";
    case HistoryKind::kJob: return "job";
    case HistoryKind::kCommit: return "commit";
    case HistoryKind::kVolume: return "volume";
  }
  return "?";
}

}  // namespace octavo::storage
