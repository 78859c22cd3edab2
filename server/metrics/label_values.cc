#include "server/metrics/label_values.h"

namespace octavo::metrics {
namespace {

const LabelValues& List(std::initializer_list<const char*> values) {
  auto& list = *new LabelValues(values.begin(), values.end());
  list.emplace_back(kOther);
  return list;
}

}  // namespace

const LabelValues& ScanEnds() {
  static const LabelValues& list =
      List({"COMPLETED", "STOPPED", "CANCELLED", "DRAINED", "SERVER_STOPPED", "INTERRUPTED",
            "SESSION_EXPIRED", "HOLD_SLOTS_FULL", "SOURCE_ENDED", "SOURCE_ERROR", "SOURCE_LOST",
            "SOURCE_OVERRUN", "SOURCE_READ", "SOURCE_STALLED", "CAMERA_CHANGED", "CAMERA_ERROR",
            "DEVICE_ERROR", "DEVICE_LOST"});
  return list;
}

const LabelValues& ScanRejections() {
  static const LabelValues& list = List(
      {"BAD_FIELD",        "CAMERA_BUSY",    "CAMERA_ERROR",  "DEVICE_DOWN",       "DEVICE_FULL",
       "DRAINING",         "EXCEEDS_BUDGET", "FORMAT_LIMIT",  "HANDOFF_DISABLED",  "HOST_MEMORY",
       "INVALID_ARGUMENT", "NO_ACCESS",      "NO_CAMERA",     "NO_CAMERA_SUPPORT", "NO_FILE",
       "NOT_OWNER",        "OUTSIDE_ROOTS",  "OUT_OF_MEMORY", "QUEUE_FULL",        "SPILL_OFF"});
  return list;
}

const LabelValues& CommitErrors() {
  static const LabelValues& list = List({"ALREADY_EXISTS",
                                         "CHECKSUM",
                                         "COMMIT_CANCELLED",
                                         "DATA_LOSS",
                                         "DESTINATION_EXISTS",
                                         "NO_PATH",
                                         "READ_ONLY",
                                         "NO_ACCESS",
                                         "ROOT_AWAY",
                                         "DEVICE_LOST",
                                         "DIGEST",
                                         "DISK_FULL",
                                         "FAILED_PRECONDITION",
                                         "FORMAT_LIMIT",
                                         "INTERNAL",
                                         "INVALID_ARGUMENT",
                                         "IO_ERROR",
                                         "NOT_FOUND",
                                         "NO_DESCRIPTORS",
                                         "NO_STAGING",
                                         "OUT_OF_MEMORY",
                                         "PERMISSION_DENIED",
                                         "RESOURCE_EXHAUSTED",
                                         "SPILL_DAMAGED",
                                         "UNAVAILABLE",
                                         "UNIMPLEMENTED"});
  return list;
}

const LabelValues& JobKinds() {
  static const auto& list = *new LabelValues{
      "reprocess", "dispersion_autofocus", "k_calibration", "tomography", "import", "projection"};
  return list;
}

const LabelValues& JobEnds() {
  static const LabelValues& list = List({"COMPLETED",      "CANCELLED",           "DRAINED",
                                         "SERVER_STOPPED", "DAMAGED_FILE",        "DEVICE_DOWN",
                                         "DEVICE_FULL",    "DEVICE_LOST",         "DIGEST",
                                         "EXCEEDS_BUDGET", "FAILED_PRECONDITION", "HOST_MEMORY",
                                         "INTERNAL",       "INVALID_ARGUMENT",    "NO_SIGNAL",
                                         "OUT_OF_MEMORY",  "PHASE_NOT_MONOTONIC", "REPLACED",
                                         "SOURCE_LOST",    "SOURCE_READ",         "SOURCE_STALLED",
                                         "VOLUME_GONE"});
  return list;
}

const LabelValues& ExportRefusals() {
  static const LabelValues& list =
      List({"BAD_FIELD",       "BAD_REPLICA",       "CONNECTIONS",
            "DRAINING",        "EXPORT_DISABLED",   "EXPORT_KIND",
            "EXPORT_NOT_HELD", "EXPORT_NOT_SEALED", "EXPORT_NOT_SHAREABLE",
            "EXPORT_REFUSED",  "EXPORT_REMOTE",     "EXPORT_REVOKED",
            "EXPORT_SPILLED",  "LEASE_LOST",        "MOVING",
            "NO_EXPORT",       "NO_GRANT",          "NO_VOLUME",
            "PROTOCOL",        "PROTOCOL_VERSION",  "RING_TAKEN",
            "SCAN_STATE",      "TICKETS",           "TICKET_EXPIRED",
            "TICKET_KIND",     "TICKET_UNKNOWN",    "TICKET_USED",
            "VOLUME_GONE",     "WRONG_PEER"});
  return list;
}

const LabelValues& BufferRefusals() {
  static const LabelValues& list =
      List({"BAD_FIELD",        "BAD_RANGE",   "BAD_REPLICA",       "CHECKSUM",      "DEVICE_DOWN",
            "DEVICE_FULL",      "DRAINING",    "EXCEEDS_BUDGET",    "EXPORTED",      "EXPORT_LEASE",
            "INVALID_ARGUMENT", "LEASED",      "LEASE_LOST",        "LEASE_MODE",    "LOST",
            "NOT_OWNER",        "NO_BUFFER",   "NO_STAGING",        "OUT_OF_MEMORY", "QUOTA",
            "HANDOFF_DISABLED", "IMPORTED",    "IMPORT_KIND",       "IMPORT_SIZE",   "IMPORTS",
            "SEALED",           "SLOW_READER", "TOO_MANY_ELEMENTS", "VERSION",       "VOLUME_GONE",
            "VOLUME_STATE"});
  return list;
}

}  // namespace octavo::metrics
