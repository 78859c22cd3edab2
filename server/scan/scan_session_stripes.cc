// A spread scan whose volumes stay where they are computed: every device has its B-scans one after
// the other, written by a placement table of its own; only projections come together on the home
// device.

#include <algorithm>
#include <utility>

#include "gpu/base/status.h"
#include "server/scan/internal.h"
#include "server/scan/scan_session.h"

namespace octavo::scan {

SpectralTarget TargetOf(const model::ResolvedScan& scan, const memory::VolumeStripe& stripe) {
  return {.volume = stripe.volume.data(),
          .volume_ascans = ScanSession::StripesOf(scan).MostRows(scan.shape[0]) * scan.shape[1],
          .mip = stripe.mip.data(),
          .aip = stripe.aip.as<float>(),
          .clipped = memory::ClippedIn(stripe.digest)};
}

// Null for the home device of a scan that is not striped.
ScanSession::Peer* ScanSession::LanePeer(size_t lane) {
  return lane > 0 ? peers_[lane - 1].get() : home_.get();
}

StreamRef ScanSession::LaneStream(size_t lane) {
  return lane > 0 ? peers_[lane - 1]->compute.ref() : compute_.ref();
}

SpectralTarget ScanSession::LaneTarget(const memory::VolumeSlot& slot, size_t lane) {
  if (striped()) return TargetOf(scan_, slot.stripes[lane]);
  return TargetOf(scan_, lane == 0 ? slot : peers_[lane - 1]->part);
}

// The projections of the rows that are whole, to their places in those of the volume.
absl::Status ScanSession::SendProjections(Peer& peer, size_t lane) {
  if (peer.rows.empty()) return absl::OkStatus();
  OCTAVO_RETURN_IF_ERROR(peer.processed.Record(LaneStream(lane)));
  OCTAVO_RETURN_IF_ERROR(peer.processed.EnqueueWait(peer.copy.ref()));
  OCTAVO_RETURN_IF_ERROR(begun_.EnqueueWait(peer.copy.ref()));
  const memory::VolumeSlot& slot = *active_->slot;
  const memory::VolumeStripe& stripe = slot.stripes[lane];
  const memory::StripeRule rule = StripesOf(scan_);
  const auto send = [&](const DeviceBuffer& to, const DeviceBuffer& from,
                        int64_t bytes_per_ascan) -> absl::Status {
    const int64_t row_bytes = scan_.shape[1] * bytes_per_ascan;
    for (const auto& [row, count] : peer.rows) {
      for (int64_t y = row; y < row + count;) {  // rows of other devices may lie between two runs:
                                                 // those are never noted here
        const int64_t end = std::min(row + count, rule.RunEnd(y));
        OCTAVO_RETURN_IF_ERROR(peer.device.CopyAcross(
            peer.copy.ref(), to.as<uint8_t>() + y * row_bytes,
            from.as<uint8_t>() + rule.LocalOf(y) * row_bytes, (end - y) * row_bytes));
        y = end;
      }
    }
    return absl::OkStatus();
  };
  OCTAVO_RETURN_IF_ERROR(send(slot.mip, stripe.mip, SizeOf(ProjectionOf(scan_.chain.output))));
  if (slot.aip) OCTAVO_RETURN_IF_ERROR(send(slot.aip, stripe.aip, 4));
  peer.rows.clear();
  return peer.copied.Record(peer.copy.ref());
}

absl::Status ScanSession::FillMissing(const ActiveVolume& volume) {
  const int64_t ascan_bytes = scan_.shape[2] * SizeOf(scan_.chain.output), columns = scan_.shape[1];
  const uint32_t pattern = FillPattern(scan_.chain.output);
  for (const auto& [first, count] : volume.assembly.missing()) {
    if (!striped()) {
      OCTAVO_RETURN_IF_ERROR(device_.Fill(compute_.ref(),
                                          volume.slot->volume.as<uint8_t>() + first * ascan_bytes,
                                          count * ascan_bytes, pattern));
      continue;
    }
    const memory::StripeRule rule = StripesOf(scan_);
    for (int64_t at = first; at < first + count;) {
      const int64_t y = at / columns, end = std::min(first + count, rule.RunEnd(y) * columns);
      const auto lane = static_cast<size_t>(rule.DeviceOf(y));
      Device& device = lane == 0 ? device_ : peers_[lane - 1]->device;
      OCTAVO_RETURN_IF_ERROR(
          device.Fill(LaneStream(lane),
                      volume.slot->stripes[lane].volume.as<uint8_t>() +
                          (rule.LocalOf(y) * columns + at % columns) * ascan_bytes,
                      (end - at) * ascan_bytes, pattern));
      at = end;
    }
  }
  return striped() && !volume.assembly.missing().empty() ? JoinPeers() : absl::OkStatus();
}

// Each device sums its part; the parts add up (SealVolume). `stream` goes on when all are there.
absl::Status ScanSession::DigestStripes(StreamRef stream, const ActiveVolume& volume,
                                        size_t event) {
  const memory::StripeRule rule = StripesOf(scan_);
  const int64_t bscan_bytes = scan_.shape[1] * scan_.shape[2] * SizeOf(scan_.chain.output);
  for (size_t lane = 0; lane < volume.slot->stripes.size(); ++lane) {
    const memory::VolumeStripe& stripe = volume.slot->stripes[lane];
    const auto l = static_cast<int64_t>(lane);
    Device& device = lane == 0 ? device_ : peers_[lane - 1]->device;
    const StreamRef on = lane == 0 ? stream : LaneStream(lane);
    OCTAVO_RETURN_IF_ERROR(
        device.DigestOfPart(on, stripe.volume.data(), rule.RowsOf(l, scan_.shape[0]) * bscan_bytes,
                            rule.PlaceOf(l, bscan_bytes), stripe.digest.as<uint64_t>()));
    OCTAVO_RETURN_IF_ERROR(device.CopyToHost(
        on, digests_.as<uint64_t>() + digest_words_ * event + memory::kSealWords * l,
        stripe.digest.data(), memory::kSealWords * 8));
    if (lane == 0) continue;
    Peer& peer = *peers_[lane - 1];
    OCTAVO_RETURN_IF_ERROR(peer.processed.Record(on));
    OCTAVO_RETURN_IF_ERROR(peer.processed.EnqueueWait(stream));
  }
  return absl::OkStatus();
}

absl::Status ScanSession::ExtractBscan(const memory::VolumeSlot& slot, int64_t y) {
  const memory::StripeRule rule = StripesOf(scan_);
  const int64_t bytes = scan_.shape[1] * scan_.shape[2] * SizeOf(scan_.chain.output);
  const memory::VolumeStripe& stripe = slot.stripes[static_cast<size_t>(rule.DeviceOf(y))];
  return device_.CopyAcross(products_.ref(), scratch_.data(),
                            stripe.volume.as<uint8_t>() + rule.LocalOf(y) * bytes, bytes);
}

}  // namespace octavo::scan
