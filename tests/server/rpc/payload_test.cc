#include "server/rpc/transport/payload.h"

#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "octavo/v1/ingest.pb.h"

#include "tests/support/rooms.h"

namespace octavo::rpc {
namespace {

constexpr uint32_t kData = v1::PushRequest::kDataFieldNumber;

// `bytes` as gRPC may deliver them: in pieces, some of them empty.
grpc::ByteBuffer InPieces(const std::string& bytes, std::mt19937& random) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size();) {
    const size_t n = std::min<size_t>(bytes.size() - at, random() % 9);
    slices.emplace_back(bytes.data() + at, n);
    at += n;
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::string Joined(const std::vector<std::pair<const char*, size_t>>& pieces) {
  std::string all;
  for (const auto& [data, size] : pieces) all.append(data, size);
  return all;
}

v1::PushRequest Request(std::mt19937& random) {
  v1::PushRequest request;
  if (random() % 2) request.set_scan(std::string(random() % 300, 's'));
  if (random() % 2) request.set_first_record((uint64_t{random()} << 32) | random());
  if (random() % 2) request.set_records(static_cast<uint32_t>(random()));
  for (auto i = random() % 3; i > 0; --i)
    request.add_markers()->set_name(std::string(random() % 200, 'm'));
  if (random() % 2) request.set_end(true);
  std::string data(random() % 3 == 0 ? 0 : random() % 2000, '\0');
  for (char& c : data) c = static_cast<char>(random());
  request.set_data(data);
  return request;
}

TEST(SplitPayloadTest, SaysWhatProtobufSays) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    v1::PushRequest request = Request(random);
    const auto split =
        SplitPayload<v1::PushRequest>(InPieces(request.SerializeAsString(), random), kData);
    ASSERT_TRUE(split.has_value());
    EXPECT_EQ(Joined(split->payload), request.data());
    request.clear_data();
    EXPECT_EQ(split->message.SerializeAsString(), request.SerializeAsString());
  }
}

TEST(SplitPayloadTest, ThePayloadOutlivesTheMessage) {
  std::mt19937 random(2);
  v1::PushRequest request;
  request.set_data(std::string(5000, 'x'));
  std::optional<WithoutPayload<v1::PushRequest>> split;
  {
    grpc::ByteBuffer buffer = InPieces(request.SerializeAsString(), random);
    split = SplitPayload<v1::PushRequest>(buffer, kData);
  }
  EXPECT_EQ(Joined(split->payload), request.data());
}

TEST(SplitPayloadTest, WhatIsCutOffOrDamagedIsRefusedOrHarmless) {
  std::mt19937 random(3);
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    const v1::PushRequest request = Request(random);
    std::string bytes = request.SerializeAsString();
    if (bytes.empty()) continue;
    if (i % 2 == 0) {
      bytes.resize(random() % bytes.size());
    } else {
      for (int flips = 0; flips < 3; ++flips)
        bytes[random() % std::min<size_t>(bytes.size(), 40)] = static_cast<char>(random());
    }
    v1::PushRequest parsed;
    const bool fine = parsed.ParseFromString(bytes);
    const auto split = SplitPayload<v1::PushRequest>(InPieces(bytes, random), kData);
    refused += !split.has_value();
    if (!split.has_value()) continue;
    EXPECT_TRUE(fine) << "accepted what protobuf refuses";
    EXPECT_EQ(Joined(split->payload), parsed.data());
  }
  EXPECT_GT(refused, 1000);
}

TEST(SplitPayloadTest, NothingMayFollowThePayload) {
  std::mt19937 random(4);
  v1::PushRequest request;
  request.set_data("data");
  const std::string bytes = request.SerializeAsString();
  EXPECT_TRUE(SplitPayload<v1::PushRequest>(InPieces(bytes, random), kData).has_value());
  EXPECT_FALSE(
      SplitPayload<v1::PushRequest>(InPieces(bytes + std::string("\x38\x01"), random), kData)
          .has_value());
  EXPECT_FALSE(SplitPayload<v1::PushRequest>(InPieces(bytes + bytes, random), kData).has_value());
}

}  // namespace
}  // namespace octavo::rpc
