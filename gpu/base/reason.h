#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace octavo::inline gpu {

// The reason for which a call was refused, or a scan or a job waits or ended. Programs base their
// decisions on it. Clients get it as octavo.v1.Reason (Scan.reason_code, Job.reason_code) or by its
// name (UPPER_SNAKE_CASE; ErrorInfo.reason), which never changes its meaning. A new reason is one
// line here; tests/reasons_test.py --write adds it to proto/octavo/v1/reason.proto.
#define OCTAVO_REASONS(X)                                                                          \
  /* Requests */                                                                                   \
  X(kBadField, "BAD_FIELD",                                                                        \
    "A field has a value that is not allowed; `field` names it, the message says what is.")        \
  X(kBadRange, "BAD_RANGE", "A box or plane lies outside of the array or volume.")                 \
  X(kOutOfRange, "OUT_OF_RANGE", "A number cannot be represented as the field needs it.")          \
  X(kIdempotencyMismatch, "IDEMPOTENCY_MISMATCH",                                                  \
    "The request_id was used for another request before.")                                         \
  X(kInProgress, "IN_PROGRESS",                                                                    \
    "The first call with this request_id is not answered yet; repeat yours with the same id.")     \
  X(kProtocol, "PROTOCOL", "The messages of a stream or socket came in the wrong order or form.")  \
  X(kBusy, "BUSY", "As many calls of this kind as the server works on already wait.")              \
  X(kDraining, "DRAINING", "The server is about to end and takes no new work.")                    \
  X(kSlowClient, "SLOW_CLIENT", "The client did not take the answer of a call in time.")           \
  X(kNotLocal, "NOT_LOCAL", "The call is for processes on the server's host only.")                \
  /* Names */                                                                                      \
  X(kNoScan, "NO_SCAN", "No scan of this name is listed.")                                         \
  X(kNoVolume, "NO_VOLUME", "No volume of this name is known or remembered.")                      \
  X(kNoBuffer, "NO_BUFFER", "No buffer of this name, or not any more.")                            \
  X(kNoJob, "NO_JOB", "No job of this name is remembered.")                                        \
  X(kNoOperation, "NO_OPERATION", "No operation of this name, or it has ended and is not kept.")   \
  X(kNoSession, "NO_SESSION", "No live session has this secret or name.")                          \
  X(kNoExport, "NO_EXPORT", "No export of this name, or not any more.")                            \
  /* States */                                                                                     \
  X(kScanState, "SCAN_STATE", "The scan is not in a state that allows the call.")                  \
  X(kJobState, "JOB_STATE", "The job is not in a state that allows the call.")                     \
  X(kVolumeState, "VOLUME_STATE", "The volume is not in a state that allows the call.")            \
  X(kVolumeGone, "VOLUME_GONE", "The volume has left memory; the message says how.")               \
  X(kVolumeFailed, "VOLUME_FAILED", "The volume was never completed.")                             \
  X(kAdopted, "ADOPTED", "The volume's session is alive again, so that it is no orphan.")          \
  X(kMoving, "MOVING", "The volume or buffer is being moved to other memory; ask again.")          \
  X(kSealed, "SEALED", "Volumes are immutable: they can be read, not written.")                    \
  X(kSpilled, "SPILLED", "The volume is not on its device; restore it first.")                     \
  X(kStriped, "STRIPED", "The volume lies on several devices, which this call cannot do.")         \
  X(kRecovered, "RECOVERED",                                                                       \
    "The volume was found after a restart; this call needs what only its scan knew.")              \
  X(kHoldSlotsFull, "HOLD_SLOTS_FULL",                                                             \
    "All Retention.hold_slots of the scan hold a volume: HoldVolume is refused (metadata: held, "  \
    "allowed), or the scan ended before its next volume. Commit or discard one.")                  \
  X(kVersion, "VERSION",                                                                           \
    "The etag, or the version of a buffer, is not the one that the caller expects.")               \
  X(kPartial, "PARTIAL", "The buffer is being written, or was written in part.")                   \
  X(kUninitialized, "UNINITIALIZED", "The buffer was never written.")                              \
  X(kIncoherent, "INCOHERENT", "The replicas of the buffer differ.")                               \
  X(kLost, "LOST", "Lost with the memory of a device, or with a server that died at work on it.")  \
  /* Leases and owners */                                                                          \
  X(kLeased, "LEASED",                                                                             \
    "Somebody else's lease stands in the way; metadata: mode, holder, expires_seconds.")           \
  X(kLeaseLost, "LEASE_LOST", "The lease of this token has ended.")                                \
  X(kLeaseMode, "LEASE_MODE", "The lease is shared, the call needs an exclusive one.")             \
  X(kLeases, "LEASES", "The server, or one principal, holds as many leases as it may.")            \
  X(kSessions, "SESSIONS",                                                                         \
    "As many sessions are alive as the server allows, or allows one principal.")                   \
  X(kNotOwner, "NOT_OWNER",                                                                        \
    "Another principal owns the object, or its buffer is private to another key.")                 \
  X(kQuota, "QUOTA", "The principal would use more than its quota allows.")                        \
  /* Memory, devices, host */                                                                      \
  X(kDeviceFull, "DEVICE_FULL", "The device has not enough free memory now; it may later.")        \
  X(kExceedsBudget, "EXCEEDS_BUDGET", "The device's whole budget would not suffice.")              \
  X(kDeviceDown, "DEVICE_DOWN", "The device is not healthy.")                                      \
  X(kDeviceLost, "DEVICE_LOST", "The device failed while it was at work.")                         \
  X(kDeviceError, "DEVICE_ERROR", "A call of the device's library failed.")                        \
  X(kOutOfMemory, "OUT_OF_MEMORY", "The host has no memory left.")                                 \
  X(kHostMemory, "HOST_MEMORY",                                                                    \
    "Projections that clients push, or files that are imported, would take more host memory than " \
    "the server allows.")                                                                          \
  X(kNoStaging, "NO_STAGING", "No page-locked memory is left to copy through; try again.")         \
  X(kNoThread, "NO_THREAD", "The host starts no more threads.")                                    \
  X(kNoDescriptors, "NO_DESCRIPTORS", "The process has no file descriptors left.")                 \
  X(kQueueFull, "QUEUE_FULL", "As many jobs wait as the queue takes.")                             \
  X(kMeasuring, "MEASURING", "Another measurement of a device runs.")                              \
  X(kMeasurementDisturbed, "MEASUREMENT_DISTURBED",                                                \
    "A scan was submitted while the device was measured.")                                         \
  X(kMeasurementWrong, "MEASUREMENT_WRONG",                                                        \
    "The device computed something else than the reference.")                                      \
  X(kScansRunning, "SCANS_RUNNING", "A measurement needs the device for itself.")                  \
  /* Buffers */                                                                                    \
  X(kBadType, "BAD_TYPE", "The element type or number of lanes is not allowed.")                   \
  X(kBadShape, "BAD_SHAPE", "The shape is not allowed.")                                           \
  X(kBadPlacement, "BAD_PLACEMENT", "The list of devices is not allowed.")                         \
  X(kBadReplica, "BAD_REPLICA", "The buffer has no replica of this index.")                        \
  X(kTooManyElements, "TOO_MANY_ELEMENTS",                                                         \
    "The array would have more elements than the server allows.")                                  \
  X(kTypeMismatch, "TYPE_MISMATCH", "The element types of the arrays differ.")                     \
  X(kShapeMismatch, "SHAPE_MISMATCH", "The shapes of the arrays differ.")                          \
  X(kMisaligned, "MISALIGNED", "The bytes do not begin or end at an element.")                     \
  X(kShortStream, "SHORT_STREAM", "The write ended before all bytes had come.")                    \
  X(kChecksum, "CHECKSUM", "The bytes are not those that the client summed.")                      \
  X(kSlowReader, "SLOW_READER", "The reader took nothing for too long.")                           \
  /* Exports */                                                                                    \
  X(kExported, "EXPORTED", "Another process maps the memory; metadata: count, users.")             \
  X(kExportDisabled, "EXPORT_DISABLED", "The server has no socket that hands memory over.")        \
  X(kExportRemote, "EXPORT_REMOTE", "Memory is handed over on the same host only.")                \
  X(kExportRefused, "EXPORT_REFUSED", "The user has not given back what was revoked.")             \
  X(kExportRevoked, "EXPORT_REVOKED", "The export was revoked before its ticket was presented.")   \
  X(kExportLease, "EXPORT_LEASE", "A buffer is handed over under an exclusive lease only.")        \
  X(kExportKind, "EXPORT_KIND", "The client does not accept this backend's memory.")               \
  X(kExportNotHeld, "EXPORT_NOT_HELD", "A LIVE scan may overwrite the volume; hold it first.")     \
  X(kExportNotSealed, "EXPORT_NOT_SEALED", "The volume is not complete.")                          \
  X(kExportNotShareable, "EXPORT_NOT_SHAREABLE", "The memory was not allocated to be shared.")     \
  X(kExportSpilled, "EXPORT_SPILLED", "The volume is not on its device.")                          \
  X(kTickets, "TICKETS", "As many tickets are out as the server allows, or allows one principal.") \
  X(kTicketExpired, "TICKET_EXPIRED", "The ticket was presented too late.")                        \
  X(kTicketUnknown, "TICKET_UNKNOWN", "No such ticket was issued.")                                \
  X(kTicketUsed, "TICKET_USED", "The ticket was presented before.")                                \
  X(kTicketKind, "TICKET_KIND", "The ticket is for another purpose than the connection.")          \
  X(kWrongPeer, "WRONG_PEER", "The ticket is for another user.")                                   \
  X(kNoGrant, "NO_GRANT", "The connection has no grant of this number.")                           \
  X(kProtocolVersion, "PROTOCOL_VERSION",                                                          \
    "Client and server speak no version of the hand-over wire in common.")                         \
  X(kConnections, "CONNECTIONS", "As many connections are open as the socket takes.")              \
  X(kHandoffDisabled, "HANDOFF_DISABLED", "The server has no socket that hands descriptors over.") \
  X(kImported, "IMPORTED",                                                                         \
    "The memory of the buffer is its client's: the server reads it and does not write it.")        \
  X(kImportKind, "IMPORT_KIND",                                                                    \
    "The device takes no memory of this kind, or the descriptor is of no such memory.")            \
  X(kImportNotSealed, "IMPORT_NOT_SEALED",                                                         \
    "A memory file lacks a seal without which it could end the server; metadata: missing.")        \
  X(kImportSize, "IMPORT_SIZE", "The memory is not of the size that was announced, or has holes.") \
  X(kImports, "IMPORTS", "A connection lends as many buffers or bytes as the server takes.")       \
  /* Streams */                                                                                    \
  X(kSlowSubscriber, "SLOW_SUBSCRIBER",                                                            \
    "The subscriber's queue was full; LOSSLESS streams end then.")                                 \
  X(kFrameLost, "FRAME_LOST",                                                                      \
    "The server could not make a frame, for want of memory or time; LOSSLESS streams end then.")   \
  X(kSequenceGone, "SEQUENCE_GONE",                                                                \
    "The frame at from_sequence is no longer kept, or does not exist yet; metadata: "              \
    "first_available, the oldest one to subscribe from, and next, the number of the next frame.")  \
  X(kNothingKept, "NOTHING_KEPT",                                                                  \
    "The scan or job has ended and no frame of the product is kept.")                              \
  X(kNoFrame, "NO_FRAME",                                                                          \
    "A frame of a held volume could not be made: memory is short, or its file cannot be read. "    \
    "Subscribe again later.")                                                                      \
  X(kNoAip, "NO_AIP", "The scan computes no AIP.")                                                 \
  X(kNoAngiogram, "NO_ANGIOGRAM", "The scan computes no angiogram.")                               \
  X(kNoSpectra, "NO_SPECTRA", "There are no spectra of this kind.")                                \
  /* Sources */                                                                                    \
  X(kNotPush, "NOT_PUSH", "The scan or job takes no pushed data.")                                 \
  X(kNotRing, "NOT_RING", "The scan has no ring.")                                                 \
  X(kRingTaken, "RING_TAKEN", "A producer has the ring already.")                                  \
  X(kCreditExceeded, "CREDIT_EXCEEDED", "The client pushed more than it had credit for.")          \
  X(kMarkersWaiting, "MARKERS_WAITING", "Too many markers wait for their records.")                \
  X(kReplaced, "REPLACED", "A newer stream, or a newer file, has taken the place of this one.")    \
  X(kSourceStalled, "SOURCE_STALLED", "The source brought nothing for too long.")                  \
  X(kSourceLost, "SOURCE_LOST", "The source is gone: its process ended or its camera left.")       \
  X(kSourceOverrun, "SOURCE_OVERRUN",                                                              \
    "Records came faster than they could be processed, and the scan may not lose any.")            \
  X(kSourceRead, "SOURCE_READ", "A file that is replayed could not be read.")                      \
  X(kSourceError, "SOURCE_ERROR", "The source failed; the sentence says how.")                     \
  X(kNoCamera, "NO_CAMERA", "No camera answers to this name.")                                     \
  X(kNoCameraSupport, "NO_CAMERA_SUPPORT", "The server was built without cameras.")                \
  X(kCameraBusy, "CAMERA_BUSY", "Another program has the camera.")                                 \
  X(kCameraChanged, "CAMERA_CHANGED",                                                              \
    "The camera's settings are not those that the scan was planned with.")                         \
  X(kCameraError, "CAMERA_ERROR", "The camera answered with an error.")                            \
  /* Files and storage */                                                                          \
  X(kNoFile, "NO_FILE", "There is no file of this name below the roots.")                          \
  X(kNoPath, "NO_PATH", "The path, or a folder on it, is not there.")                              \
  X(kNotAFolder, "NOT_A_FOLDER", "A part of the path is a file.")                                  \
  X(kNoAccess, "NO_ACCESS", "The server may not read or write there.")                             \
  X(kOutsideRoots, "OUTSIDE_ROOTS",                                                                \
    "The path leads out of the folders that the configuration names.")                             \
  X(kLinks, "LINKS", "The path has too many symbolic links.")                                      \
  X(kNameTooLong, "NAME_TOO_LONG", "A name is longer than the file system takes.")                 \
  X(kReadOnly, "READ_ONLY", "The file system is mounted read-only.")                               \
  X(kDiskFull, "DISK_FULL", "The disk, or the user's quota on it, is full.")                       \
  X(kIoError, "IO_ERROR", "The file system failed; metadata: errno.")                              \
  X(kDestinationExists, "DESTINATION_EXISTS",                                                      \
    "Something is at the destination; Octavo never overwrites.")                                   \
  X(kFormatLimit, "FORMAT_LIMIT", "The format cannot hold such a volume.")                         \
  X(kCommitCancelled, "COMMIT_CANCELLED", "A client cancelled the commit; the volume stays held.") \
  X(kRootAway, "ROOT_AWAY", "A storage root is not there, or not the one that it was.")            \
  X(kDigest, "DIGEST", "The bytes are not those that were sealed.")                                \
  X(kSpillOff, "SPILL_OFF", "The tier is off in the configuration.")                               \
  X(kSpillQuota, "SPILL_QUOTA", "The tier is full.")                                               \
  X(kSpillDamaged, "SPILL_DAMAGED", "The spilled file is damaged.")                                \
  /* Raw data and projections */                                                                   \
  X(kBadProjections, "BAD_PROJECTIONS", "A dataset of projections is not as it has to be.")        \
  X(kNoProjections, "NO_PROJECTIONS", "No projections came.")                                      \
  X(kDamagedFile, "DAMAGED_FILE", "The file cannot be read as what it says it is.")                \
  X(kUnknownCompression, "UNKNOWN_COMPRESSION",                                                    \
    "The file is compressed in a way that the server cannot read.")                                \
  X(kUnsupportedFile, "UNSUPPORTED_FILE",                                                          \
    "The file is sound, but of a kind that is not read; metadata: place, value, allowed.")         \
  X(kFramesMissing, "FRAMES_MISSING", "Projections that the job needs never came.")                \
  X(kAxisInDoubt, "AXIS_IN_DOUBT", "The rotation axis could not be found with certainty.")         \
  X(kNoSignal, "NO_SIGNAL", "The records show no depth structure to focus on.")                    \
  X(kNoFringe, "NO_FRINGE", "The records show no fringe of a mirror.")                             \
  X(kPhaseNotMonotonic, "PHASE_NOT_MONOTONIC",                                                     \
    "The fringe's phase goes back; it is not that of one mirror.")                                 \
  /* Ends of scans and jobs, which are no errors of a call */                                      \
  X(kCompleted, "COMPLETED", "All volumes were made.")                                             \
  X(kStopped, "STOPPED", "A client stopped the scan after a volume.")                              \
  X(kCancelled, "CANCELLED",                                                                       \
    "A client ended the scan, job, move or derivation (CancelScan, CancelJob, CancelOperation).")  \
  X(kInterrupted, "INTERRUPTED", "A scan that goes before it in its queue interrupted it.")        \
  X(kSessionExpired, "SESSION_EXPIRED", "Its session ended, and what it makes is scratch.")        \
  X(kDrained, "DRAINED", "The server is about to end and lets no more begin.")                     \
  X(kServerStopped, "SERVER_STOPPED", "The server ended.")                                         \
  X(kSourceEnded, "SOURCE_ENDED", "The source had no more records.")                               \
  /* What became of a volume or buffer, which is no error */                                       \
  X(kDiscarded, "DISCARDED", "A client discarded it.")                                             \
  X(kAutoDiscarded, "AUTO_DISCARDED", "Its scan keeps no volumes (AUTO_DISCARD).")                 \
  X(kOverwritten, "OVERWRITTEN", "A newer volume of its LIVE scan took its place.")                \
  X(kDestroyed, "DESTROYED", "A client destroyed the buffer.")                                     \
  X(kExpired, "EXPIRED", "Its time to live was over.")                                             \
  X(kRevoked, "REVOKED",                                                                           \
    "The client that lent the memory of the buffer took it back or has gone, or its session has "  \
    "ended.")                                                                                      \
  /* Why a job waits, which is no error */                                                         \
  X(kWaitingForDevice, "WAITING_FOR_DEVICE", "Another job has the turn of its device.")            \
  X(kWaitingForMemory, "WAITING_FOR_MEMORY", "Its device has not enough free memory now.")         \
  X(kWaitingForThread, "WAITING_FOR_THREAD", "The host starts no more threads now.")               \
  /* Errors without a reason of their own: the names of gRPC's status codes */                     \
  X(kUnknown, "UNKNOWN", "Something that the server does not know failed.")                        \
  X(kInvalidArgument, "INVALID_ARGUMENT", "The request is wrong; the message says what.")          \
  X(kDeadlineExceeded, "DEADLINE_EXCEEDED", "The time that the client gave ran out.")              \
  X(kNotFound, "NOT_FOUND", "There is none of that name.")                                         \
  X(kAlreadyExists, "ALREADY_EXISTS", "What is to be made exists already.")                        \
  X(kPermissionDenied, "PERMISSION_DENIED", "The caller may not do this.")                         \
  X(kResourceExhausted, "RESOURCE_EXHAUSTED", "There is no room; the message says where.")         \
  X(kFailedPrecondition, "FAILED_PRECONDITION", "The state does not allow the call.")              \
  X(kAborted, "ABORTED", "Another client was first.")                                              \
  X(kUnimplemented, "UNIMPLEMENTED", "This server cannot do it.")                                  \
  X(kInternal, "INTERNAL", "The server has a fault; its log says more.")                           \
  X(kUnavailable, "UNAVAILABLE", "The server or the device cannot be used now.")                   \
  X(kDataLoss, "DATA_LOSS", "The bytes are gone, or changed.")                                     \
  /* Identity and rights */                                                                        \
  X(kWrongRole, "WRONG_ROLE",                                                                      \
    "The caller's role may not call this method; metadata: method, needed, role, found.")          \
  X(kBadToken, "BAD_TOKEN",                                                                        \
    "The bearer token is malformed, not known (never issued, or revoked), or has expired.")        \
  X(kNoToken, "NO_TOKEN", "Whoever calls from there without a token may do nothing.")              \
  X(kGrantEnded, "GRANT_ENDED", "There is no grant of that name; it may have ended.")              \
  X(kNoIdentity, "NO_IDENTITY",                                                                    \
    "The caller, or the object's owner, has no identity that a grant could name.")                 \
  X(kGrants, "GRANTS", "The owner, or the server, has as many grants as it may.")

enum class Reason : uint8_t {
  kNone = 0,  // no reason was given
#define OCTAVO_REASON_(enumerator, name, meaning) enumerator,
  OCTAVO_REASONS(OCTAVO_REASON_)
#undef OCTAVO_REASON_
};

/// "LEASED"; empty for kNone.
absl::string_view Name(Reason reason);
/// The reason with this name, or nullopt if there is none.
std::optional<Reason> ReasonNamed(absl::string_view name);

}  // namespace octavo::inline gpu
