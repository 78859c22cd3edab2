#include "server/storage/io/write_queue.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"

#include "server/storage/io/direct_alignment.h"
#include "tests/server/storage/io/write_faults.h"
#include "tests/server/storage/storage_test_base.h"

namespace octavo::storage {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using testing::Faults;
using testing::StorageTest;
using Bytes = std::vector<uint8_t>;

constexpr int64_t kBlock = WriteQueue::kBlockBytes;

class WriteQueueTest : public StorageTest {
 protected:
  WriteQueueTest() { Faults().Reset(); }
  ~WriteQueueTest() override { Faults().Reset(); }

  static Bytes Random(int64_t bytes) {
    std::mt19937_64 random(static_cast<uint64_t>(bytes));
    Bytes out(static_cast<size_t>(bytes));
    for (uint8_t& b : out) b = static_cast<uint8_t>(random());
    return out;
  }

  /// Queues `data` from `offset` on, in blocks.
  static absl::Status WriteAll(WriteQueue& queue, const std::shared_ptr<OutputFile>& file,
                               const Bytes& data, int64_t offset) {
    for (int64_t at = 0; at < std::ssize(data);) {
      const int64_t begin = (offset + at) % kDirectAlignment,
                    n = std::min(kBlock - begin, std::ssize(data) - at);
      WriteQueue::Block block = queue.NewBlock(begin + n);
      std::copy_n(data.data() + at, n, block.data() + begin);
      const absl::Status queued = queue.Write(
          file, std::move(block), {{.begin = begin, .bytes = n, .offset = offset + at}});
      if (!queued.ok()) return queued;
      at += n;
    }
    return absl::OkStatus();
  }

  /// Writes a file that has `offset` zeros before `data`; what is in it afterwards.
  Bytes RoundTrip(const std::string& path, const Bytes& data, int64_t offset) {
    std::filesystem::remove(path);
    std::atomic<int64_t> written{0};
    WriteQueue queue(&written);
    auto file = queue.Create(path, /*direct=*/true);
    EXPECT_THAT(file, IsOk());
    EXPECT_THAT(WriteAll(queue, *file, data, offset), IsOk());
    *file = nullptr;
    EXPECT_THAT(queue.Drain(), IsOk());
    EXPECT_EQ(written, std::ssize(data));
    return ReadFile(path);
  }
  static Bytes Expected(const Bytes& data, int64_t offset) {
    if (data.empty()) return {};
    Bytes out(static_cast<size_t>(offset), 0);
    out.insert(out.end(), data.begin(), data.end());
    return out;
  }
  void ExpectRoundTrip(const std::string& path, int64_t bytes, int64_t offset) {
    const Bytes data = Random(bytes);
    EXPECT_TRUE(RoundTrip(path, data, offset) == Expected(data, offset))
        << bytes << " bytes at " << offset;
  }
};

const int64_t kSizes[] = {
    0,        1,       4095,       4096,   4097,       12288,      262'143,
    262'144,  262'145, kBlock - 1, kBlock, kBlock + 1, 2 * kBlock, 2 * kBlock + 4097,
    9'000'001};
const int64_t kOffsets[] = {0, 1, 128, 4095, 4096, 4097};

TEST_F(WriteQueueTest, EverySizeAndOffsetComesBack) {
  for (const int64_t bytes : kSizes) {
    for (const int64_t offset : kOffsets) ExpectRoundTrip(root() + "/f", bytes, offset);
  }
}

TEST_F(WriteQueueTest, WholePagesGoPastThePageCache) {
  ExpectRoundTrip(root() + "/f", 2 * kBlock + 100, 128);
  if (Faults().opened_direct == 0 || Faults().direct == 0)
    GTEST_SKIP() << "the file system of " << root() << " has no direct writes";
  EXPECT_GE(Faults().direct, 2 * kBlock - 4096);
  EXPECT_LE(Faults().buffered, 2 * 4096);
}

TEST_F(WriteQueueTest, AFileSystemThatRefusesAtTheOpeningGetsBufferedWrites) {
  Faults().open_direct = EINVAL;
  for (const int64_t bytes : kSizes) ExpectRoundTrip(root() + "/f", bytes, 128);
  EXPECT_EQ(Faults().direct, 0);
}

TEST_F(WriteQueueTest, AFileSystemThatRefusesAtAWriteGetsBufferedWritesFromThenOn) {
  Faults().write_direct = EINVAL;
  for (const int64_t bytes : kSizes) ExpectRoundTrip(root() + "/f", bytes, 128);
  EXPECT_EQ(Faults().direct, 0);

  Faults().Reset();
  Faults().write_direct = EINVAL;
  std::atomic<int64_t> written{0};
  WriteQueue queue(&written);
  const Bytes data = Random(kBlock);
  for (int i = 0; i < 5; ++i) {
    auto file = queue.Create(absl::StrCat(root(), "/g", i), true);
    ASSERT_THAT(file, IsOk());
    ASSERT_THAT(WriteAll(queue, *file, data, 0), IsOk());
    ASSERT_THAT(queue.Drain(), IsOk());
  }
  EXPECT_EQ(Faults().opened_direct, 1) << "the next files do not try again";
}

TEST_F(WriteQueueTest, WithoutADescriptorForItAFileIsBufferedAndTheNextOneTriesAgain) {
  Faults().open_direct = EMFILE;
  std::atomic<int64_t> written{0};
  WriteQueue queue(&written);
  const Bytes data = Random(kBlock);
  for (int i = 0; i < 2; ++i) {
    auto file = queue.Create(absl::StrCat(root(), "/g", i), true);
    ASSERT_THAT(file, IsOk());
    ASSERT_THAT(WriteAll(queue, *file, data, 0), IsOk());
    ASSERT_THAT(queue.Drain(), IsOk());
    EXPECT_TRUE(ReadFile((*file)->path()) == data);
    EXPECT_EQ(Faults().opened_direct, i);
    Faults().open_direct = 0;
  }
}

TEST_F(WriteQueueTest, ShortWritesAreContinued) {
  for (const int64_t most : {1000, 4096, 5000, 65'536, 1'000'000}) {
    Faults().most = most;
    for (const int64_t bytes : {4097, 300'000, 9'000}) {
      for (const int64_t offset : {0, 128}) ExpectRoundTrip(root() + "/f", bytes, offset);
    }
  }
}

TEST_F(WriteQueueTest, OnAFileSystemInMemory) {
  const std::string folder = "/dev/shm/octavo-write-queue-test";
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  if (!std::filesystem::create_directory(folder, error)) GTEST_SKIP() << folder << error.message();
  for (const int64_t bytes : kSizes) ExpectRoundTrip(folder + "/f", bytes, 352);
  std::filesystem::remove_all(folder);
}

TEST_F(WriteQueueTest, AFullDiskIsTheErrorOfAllThatFollows) {
  for (const int64_t room : {int64_t{0}, int64_t{4096}, kBlock + 1, 3 * kBlock}) {
    Faults().Reset();
    Faults().room = room;
    std::atomic<int64_t> written{0};
    WriteQueue queue(&written);
    auto file = queue.Create(absl::StrCat(root(), "/f", room), true);
    ASSERT_THAT(file, IsOk());
    (void)WriteAll(queue, *file, Random(5 * kBlock), 0);
    EXPECT_THAT(queue.Drain(), IsError(absl::StatusCode::kResourceExhausted, "f"));
    EXPECT_THAT(WriteAll(queue, *file, Random(10), 0),
                IsError(absl::StatusCode::kResourceExhausted, "f"));
    EXPECT_LE(written, room);
  }
}

/// A block whose pieces go to every other place of a file, in turn from its end and its beginning.
std::vector<WriteQueue::Piece> Scattered(int64_t count, int64_t bytes) {
  std::vector<WriteQueue::Piece> pieces;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t place = i % 2 == 0 ? i / 2 : count - 1 - i / 2;
    pieces.push_back({.begin = i * bytes, .bytes = bytes, .offset = 2 * place * bytes});
  }
  return pieces;
}

/// Waits until so many threads hang in a write; how many do.
int WaitForWriters(int count) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (Faults().waiting < count && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return Faults().waiting;
}

TEST_F(WriteQueueTest, ThePiecesOfABlockAreWrittenSideBySide) {
  constexpr int64_t kPieces = 20, kBytes = 64 << 10;
  std::atomic<int64_t> written{0};
  WriteQueue queue(&written);
  auto file = queue.Create(root() + "/f", true);
  ASSERT_THAT(file, IsOk());
  const Bytes data = Random(kPieces * kBytes);
  WriteQueue::Block block = queue.NewBlock(kPieces * kBytes);
  std::copy(data.begin(), data.end(), block.data());
  const auto pieces = Scattered(kPieces, kBytes);
  Faults().held = true;
  EXPECT_THAT(queue.Write(*file, std::move(block), pieces), IsOk());
  EXPECT_EQ(WaitForWriters(8), 8);
  Faults().held = false;
  ASSERT_THAT(queue.Drain(), IsOk());
  EXPECT_EQ(written, kPieces * kBytes);

  Bytes expected(static_cast<size_t>((2 * kPieces - 1) * kBytes), 0);
  for (const auto& piece : pieces)
    std::copy_n(data.begin() + piece.begin, piece.bytes, expected.begin() + piece.offset);
  EXPECT_TRUE(ReadFile(root() + "/f") == expected);
}

TEST_F(WriteQueueTest, TinyPiecesAndEmptyOnesComeBack) {
  for (const int64_t bytes : {0, 1, 100, 4096, 5000, 30'000, 70'000}) {
    constexpr int64_t kPieces = 33;
    std::atomic<int64_t> written{0};
    WriteQueue queue(&written);
    auto file = queue.Create(absl::StrCat(root(), "/f", bytes), true);
    ASSERT_THAT(file, IsOk());
    const int64_t room = (bytes + 4095) / 4096 * 4096 + 4096;
    WriteQueue::Block block = queue.NewBlock(kPieces * room);
    std::vector<WriteQueue::Piece> pieces;
    const Bytes data = Random(kPieces * bytes);
    for (int64_t i = 0; i < kPieces; ++i) {
      pieces.push_back({.begin = i * room, .bytes = bytes, .offset = i * room});
      std::copy_n(data.begin() + i * bytes, bytes, block.data() + i * room);
    }
    ASSERT_THAT(queue.Write(*file, std::move(block), pieces), IsOk());
    ASSERT_THAT(queue.Drain(), IsOk());
    EXPECT_EQ(written, kPieces * bytes);
    const Bytes back = ReadFile((*file)->path());
    for (int64_t i = 0; i < kPieces && bytes > 0; ++i) {
      EXPECT_TRUE(std::equal(data.begin() + i * bytes, data.begin() + (i + 1) * bytes,
                             back.begin() + i * room))
          << i;
    }
  }
}

TEST_F(WriteQueueTest, ItsEndDropsThePiecesThatNoThreadHasTaken) {
  constexpr int64_t kPieces = 20, kBytes = 64 << 10;
  std::atomic<int64_t> written{0};
  std::weak_ptr<OutputFile> open;
  Faults().held = true;
  {
    auto queue = std::make_unique<WriteQueue>(&written);
    auto file = queue->Create(root() + "/f", true);
    ASSERT_THAT(file, IsOk());
    open = *file;
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(
          queue->Write(*file, queue->NewBlock(kPieces * kBytes), Scattered(kPieces, kBytes)),
          IsOk());
    }
    *file = nullptr;
    EXPECT_EQ(WaitForWriters(8), 8);
    Faults().delay_ms = 1000;  // meanwhile it drops the rest
    std::thread end([&] { queue = nullptr; });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    Faults().held = false;
    end.join();
  }
  EXPECT_LE(written, 8 * kBytes);
  EXPECT_TRUE(open.expired());
}

TEST_F(WriteQueueTest, WithoutThreadsTheCallerWritesAllPieces) {
  constexpr int64_t kPieces = 20, kBytes = 64 << 10;
  Faults().no_threads = true;
  std::atomic<int64_t> written{0};
  WriteQueue queue(&written);
  auto file = queue.Create(root() + "/f", true);
  ASSERT_THAT(file, IsOk());
  ASSERT_THAT(queue.Write(*file, queue.NewBlock(kPieces * kBytes), Scattered(kPieces, kBytes)),
              IsOk());
  EXPECT_EQ(written, kPieces * kBytes);
  EXPECT_THAT(queue.Drain(), IsOk());
}

TEST_F(WriteQueueTest, AnErrorOfOnePieceIsTheErrorOfTheBlock) {
  constexpr int64_t kPieces = 20, kBytes = 64 << 10;
  Faults().room = 5 * kBytes + 4096;
  std::atomic<int64_t> written{0};
  WriteQueue queue(&written);
  auto file = queue.Create(root() + "/f", true);
  ASSERT_THAT(file, IsOk());
  (void)queue.Write(*file, queue.NewBlock(kPieces * kBytes), Scattered(kPieces, kBytes));
  EXPECT_THAT(queue.Drain(), IsError(absl::StatusCode::kResourceExhausted, "f"));
  EXPECT_EQ(written, 5 * kBytes) << "whole pieces";
  EXPECT_EQ(file->use_count(), 1) << "the queue has let the file go";
}

TEST_F(WriteQueueTest, ABlockWithoutPiecesIsRefused) {
  std::atomic<int64_t> written{0};
  WriteQueue queue(&written);
  auto file = queue.Create(root() + "/f", true);
  ASSERT_THAT(file, IsOk());
  EXPECT_THAT(queue.Write(*file, queue.NewBlock(1), {}),
              IsError(absl::StatusCode::kInternal, "without pieces"));
  EXPECT_THAT(queue.Drain(), IsOk());
}

TEST_F(WriteQueueTest, BlocksShareNoBytesAndOutliveTheirNeighboursAndTheQueue) {
  std::atomic<int64_t> written{0};
  auto queue = std::make_unique<WriteQueue>(&written);
  std::vector<WriteQueue::Block> blocks;
  for (const int64_t bytes :
       {int64_t{1}, int64_t{262'143}, int64_t{262'144}, int64_t{300'000}, int64_t{1} << 20,
        (int64_t{1} << 20) + 4095, int64_t{7} << 18, kBlock, 5 * kBlock + 1}) {
    for (int i = 0; i < 10; ++i) {
      WriteQueue::Block block = queue->NewBlock(bytes);
      ASSERT_GE(block.size(), bytes);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(block.data()) % kDirectAlignment, 0);
      std::fill_n(block.data(), block.size(), static_cast<char>(blocks.size()));
      blocks.push_back(std::move(block));
    }
  }
  for (size_t i = 0; i < blocks.size(); i += 2) blocks[i] = WriteQueue::Block();
  queue = nullptr;
  for (size_t i = 1; i < blocks.size(); i += 2) {
    ASSERT_TRUE(std::all_of(blocks[i].data(), blocks[i].data() + blocks[i].size(), [&](char byte) {
      return byte == static_cast<char>(i);
    })) << i;
  }
}

TEST_F(WriteQueueTest, WhatIsPendingIsLimited) {
  std::atomic<int64_t> written{0};
  WriteQueue queue(&written);
  auto file = queue.Create(root() + "/f", true);
  ASSERT_THAT(file, IsOk());
  Faults().held = true;
  std::atomic<int64_t> queued{0};
  std::thread writer([&] {
    const Bytes block = Random(kBlock);
    for (int64_t i = 0; i < 40; ++i) {
      EXPECT_THAT(WriteAll(queue, *file, block, i * kBlock), IsOk());
      ++queued;
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LE(queued, 16);
  Faults().held = false;
  writer.join();
  EXPECT_THAT(queue.Drain(), IsOk());
  EXPECT_EQ(written, 40 * kBlock);
}

TEST_F(WriteQueueTest, ItsEndDropsWhatIsPending) {
  std::atomic<int64_t> written{0};
  Faults().delay_ms = 1000;
  {
    WriteQueue queue(&written);
    auto file = queue.Create(root() + "/f", true);
    ASSERT_THAT(file, IsOk());
    const Bytes block = Random(kDirectAlignment);
    for (int64_t i = 0; i < 60; ++i)
      ASSERT_THAT(WriteAll(queue, *file, block, i * kDirectAlignment), IsOk());
  }
  EXPECT_LE(written, 30 * kDirectAlignment);
  const int64_t then = Faults().direct + Faults().buffered;
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_EQ(Faults().direct + Faults().buffered, then) << "nothing is written after its end";
}

TEST_F(WriteQueueTest, WithoutThreadsTheCallerWrites) {
  Faults().no_threads = true;
  for (const int64_t bytes : kSizes) ExpectRoundTrip(root() + "/f", bytes, 128);
  Faults().room = 4096;
  std::atomic<int64_t> written{0};
  WriteQueue queue(&written);
  auto file = queue.Create(root() + "/g", true);
  ASSERT_THAT(file, IsOk());
  EXPECT_THAT(WriteAll(queue, *file, Random(20'000), 0),
              IsError(absl::StatusCode::kResourceExhausted, "g"));
}

TEST_F(WriteQueueTest, ManyThreadsQueueManyFiles) {
  std::atomic<int64_t> written{0};
  WriteQueue queue(&written);
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 12; ++i) {
        auto file = queue.Create(absl::StrCat(root(), "/", t, "-", i), i % 2 == 0);
        ASSERT_THAT(file, IsOk());
        ASSERT_THAT(WriteAll(queue, *file, Random(300'000 + 1000 * t + i), 0), IsOk());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_THAT(queue.Drain(), IsOk());
  for (int t = 0; t < 6; ++t) {
    for (int i = 0; i < 12; ++i)
      EXPECT_TRUE(ReadFile(absl::StrCat(root(), "/", t, "-", i)) == Random(300'000 + 1000 * t + i));
  }
}

}  // namespace
}  // namespace octavo::storage
