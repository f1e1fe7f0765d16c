#include "server/worker/resident.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/parallel.h"
#include "base/reason.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "kernels/format/read_tensor.h"
#include "packer/model/save.h"
#include "server/worker/operands.h"

namespace glyd {
namespace {

using glyd::v1::Buffer;
using glyd::v1::ModelTable;
using glyd::v1::Pack;

constexpr uint64_t kMaxTable = uint64_t{1} << 30;

// Where the file's tensors go in the block. Items are the table's packs, then its tensors.
struct Move {
  const SaveFile* file;
  size_t item;
  uint64_t from, to, bytes;
};

class Planner {
 public:
  explicit Planner(const Save& save) : save_(save) {}
  absl::Status Place(const SavedTensor& t, size_t item, Buffer* buffer) {
    pieces.resize(item + 1);
    const size_t before = moves.size();
    if (t.bytes > kMaxModel - std::min(at_, kMaxModel))
      return absl::ResourceExhaustedError(absl::StrCat("tensor \"", Printable(t.name),
                                                       "\": ", t.bytes, " bytes after ", at_,
                                                       " make a model too large to place"));
    buffer->set_offset(at_);
    buffer->set_bytes(t.bytes);
    for (uint64_t done = 0; done < t.bytes; done += Device::kWindowBytes)
      moves.push_back({&save_.files[t.file], item, t.offset + done, at_ + done,
                       std::min(Device::kWindowBytes, t.bytes - done)});
    pieces[item] += moves.size() - before;
    at_ = AlignUp(at_ + t.bytes, kBufferAlign);
    return absl::OkStatus();
  }
  uint64_t allocation_bytes() const {
    return AlignUp(std::max<uint64_t>(at_, 1), kAllocationAlign);
  }
  std::vector<Move> moves;
  std::vector<size_t> pieces;  // moves of each item; none of an empty tensor

 private:
  static constexpr uint64_t kMaxModel = uint64_t{1} << 46;
  const Save& save_;
  uint64_t at_ = 0;
};

// Two saves of one manifest may hold other bytes: which files these are, and as of when.
absl::StatusOr<Digest> IdentityOf(const Save& save) {
  Sha256 hash;
  for (const SaveFile& f : save.files) {
    struct stat st;
    if (::fstat(f.opened.fd.get(), &st) != 0) return ErrnoStatus(errno, Printable(f.name));
    const uint64_t facts[] = {st.st_dev,
                              st.st_ino,
                              static_cast<uint64_t>(st.st_size),
                              static_cast<uint64_t>(st.st_mtim.tv_sec),
                              static_cast<uint64_t>(st.st_mtim.tv_nsec),
                              static_cast<uint64_t>(st.st_ctim.tv_sec),
                              static_cast<uint64_t>(st.st_ctim.tv_nsec)};
    hash.Update(facts, sizeof facts);
  }
  return hash.Finish();
}

std::string Bytes(const Digest& d) { return std::string(d.begin(), d.end()); }

}  // namespace

void ResidentModel::Compare(const std::string& tensor, Sha256& hash, const std::string& should_be,
                            std::vector<Mismatch>* bad) {
  const Digest is = hash.Finish();
  if (Bytes(is) != should_be) bad->push_back({tensor, Hex(is), absl::BytesToHexString(should_be)});
}

uint64_t ResidentModel::tensor_count() const {
  uint64_t n = table_.tensors_size();
  for (const Pack& p : table_.packs()) n += p.members_size();
  return n;
}

void ResidentModel::Index() {
  for (int i = 0; i < table_.packs_size(); ++i) packs_[table_.packs(i).name()] = i;
  for (int i = 0; i < table_.tensors_size(); ++i) tensors_[table_.tensors(i).name()] = i;
}

PackView ResidentModel::View(const Pack& p) const {
  PackView v;
  v.meta.layout = p.layout() == "mma12" ? Layout::kMma12 : Layout::kMma;
  v.meta.rows = p.rows();
  v.meta.cols = p.cols();
  for (int k = 0; k < 3 && k < p.tiers_size(); ++k) v.meta.tiers[k] = p.tiers(k);
  v.meta.hb = p.hb();
  const uint8_t* base = memory_->data();
  v.data = base + p.data().offset();
  v.data_bytes = p.data().bytes();
  v.side = base + p.side().offset();
  v.side_bytes = p.side().bytes();
  v.base = reinterpret_cast<const int32_t*>(base + p.base().offset());
  v.base_count = p.base().bytes() / sizeof(int32_t);
  return v;
}

absl::StatusOr<std::unique_ptr<ResidentModel>> ResidentModel::Load(Device& device, const Dir& dir,
                                                                   const std::string& label,
                                                                   bool verify, int threads,
                                                                   const Ask& ask,
                                                                   Progress& progress) {
  GLYD_ASSIGN_OR_RETURN(const Save save, Save::Open(dir));
  auto model = std::unique_ptr<ResidentModel>(new ResidentModel());
  ModelTable& table = model->table_;
  table.set_format(save.format);
  table.set_layout(std::string(LayoutName(save.layout)));
  table.set_source_repo(save.source_repo);
  table.set_source_revision(save.source_revision);
  table.set_manifest_sha256(Bytes(save.manifest_sha256));
  table.set_bf16_bytes(save.bf16_bytes);
  Planner plan(save);
  size_t item = 0;
  for (const SavedPack& p : save.packs) {
    Pack& out = *table.add_packs();
    out.set_name(p.name);
    out.set_layout(std::string(LayoutName(p.meta.layout)));
    out.set_rows(p.meta.rows);
    out.set_cols(p.meta.cols);
    if (p.meta.layout == Layout::kMma)
      for (const uint32_t t : p.meta.tiers) out.add_tiers(t);
    out.set_hb(p.meta.hb);
    out.set_experts(p.experts);
    out.set_transposed(p.transposed);
    GLYD_RETURN_IF_ERROR(plan.Place(p.data, item, out.mutable_data()));
    GLYD_RETURN_IF_ERROR(plan.Place(p.side, item, out.mutable_side()));
    GLYD_RETURN_IF_ERROR(plan.Place(p.base, item, out.mutable_base()));
    ++item;
    for (const PackMember& m : p.members) {
      glyd::v1::Member& member = *out.add_members();
      member.set_name(m.name);
      for (const uint64_t d : m.shape) member.add_shape(d);
      member.set_sha256(Bytes(m.sha256));
    }
  }
  for (const RawTensor& t : save.tensors) {
    glyd::v1::Tensor& out = *table.add_tensors();
    out.set_name(t.tensor.name);
    out.set_dtype(t.tensor.dtype);
    for (const uint64_t d : t.tensor.shape) out.add_shape(d);
    out.set_sha256(Bytes(t.sha256));
    GLYD_RETURN_IF_ERROR(plan.Place(t.tensor, item++, out.mutable_buffer()));
  }
  table.set_allocation_bytes(plan.allocation_bytes());
  model->Index();
  GLYD_ASSIGN_OR_RETURN(const Digest identity, IdentityOf(save));
  if (!ask({plan.allocation_bytes(), save.packed_bytes, table.manifest_sha256(), Bytes(identity)}))
    return absl::CancelledError("the load was stopped");

  GLYD_ASSIGN_OR_RETURN(model->memory_, device.Allocate(plan.allocation_bytes(), label));
  Memory& memory = *model->memory_;
  // One pass: whoever reads the last piece of an item checks it, while the others read on.
  std::vector<std::atomic<size_t>> left(plan.pieces.begin(), plan.pieces.end());
  progress.Phase(verify ? "read and verify" : "read", save.packed_bytes);
  GLYD_RETURN_IF_ERROR(
      ParallelFor(plan.moves.size(), threads, progress, [&](size_t, size_t i) -> absl::Status {
        const Move& m = plan.moves[i];
        GLYD_ASSIGN_OR_RETURN(uint8_t * window, device.OpenWindow(memory, m.to, m.bytes));
        GLYD_RETURN_IF_ERROR(
            PreadFull(m.file->opened.fd.get(), window, m.bytes, m.from, m.file->name));
        GLYD_RETURN_IF_ERROR(device.Commit(memory, m.to, window, m.bytes));
        if (left[m.item].fetch_sub(1, std::memory_order_acq_rel) == 1) {
          const absl::Status s = model->CheckItem(device, m.item, verify);
          if (!s.ok())
            return WithReason(
                absl::Status(s.code(), absl::StrCat(Printable(m.file->name), ": ", s.message())),
                ReasonOf(s));
        }
        progress.Advance(m.bytes);
        return absl::OkStatus();
      }));
  for (size_t i = 0; i < left.size(); ++i)
    if (plan.pieces[i] == 0) GLYD_RETURN_IF_ERROR(model->CheckItem(device, i, verify));
  GLYD_RETURN_IF_ERROR(device.Finish(memory));
  GLYD_RETURN_IF_ERROR(memory.Seal());
  return model;
}

absl::Status ResidentModel::CheckBytes(Device& device, const Pack& p) const {
  PackCopy copy;
  GLYD_ASSIGN_OR_RETURN(const PackView view, ReadableView(device, *memory_, View(p), &copy));
  return CheckPack(view);
}

absl::Status ResidentModel::CheckItem(Device& device, size_t item, bool verify) const {
  const auto packs = static_cast<size_t>(table_.packs_size());
  if (item < packs) {
    const Pack& p = table_.packs(static_cast<int>(item));
    const absl::Status s = CheckBytes(device, p);
    if (absl::IsDataLoss(s))
      return WithReason(
          absl::DataLossError(absl::StrCat("pack \"", Printable(p.name()), "\": ", s.message())),
          "BAD_PACK");
    GLYD_RETURN_IF_ERROR(s);
  }
  if (!verify) return absl::OkStatus();
  std::vector<Mismatch> bad;
  GLYD_RETURN_IF_ERROR(HashItem(device, item, &bad));
  if (bad.empty()) return absl::OkStatus();
  return WithReason(
      absl::DataLossError(absl::StrCat("tensor \"", Printable(bad[0].tensor), "\" has sha256 ",
                                       bad[0].is, ", glyd.json says ", bad[0].should_be)),
      "BAD_HASH");
}

absl::StatusOr<std::unique_ptr<ResidentModel>> ResidentModel::Import(Device& device,
                                                                     UniqueFd memory,
                                                                     UniqueFd table, int threads,
                                                                     Progress& progress) {
  struct stat st;
  if (::fstat(table.get(), &st) != 0) return ErrnoStatus(errno, "table");
  if (static_cast<uint64_t>(st.st_size) > kMaxTable)
    return absl::ResourceExhaustedError(
        absl::StrCat("a table of ", st.st_size, " bytes, at most ", kMaxTable));
  std::string bytes(st.st_size, '\0');
  GLYD_RETURN_IF_ERROR(PreadFull(table.get(), bytes.data(), bytes.size(), 0, "table"));
  auto model = std::unique_ptr<ResidentModel>(new ResidentModel());
  if (!model->table_.ParseFromString(bytes)) return absl::DataLossError("the table does not parse");
  ExportedMemory exported;
  exported.fd = std::move(memory);
  exported.bytes = model->table_.allocation_bytes();
  GLYD_ASSIGN_OR_RETURN(model->memory_, device.Import(std::move(exported), Access::kRead));
  const uint64_t size = model->memory_->bytes();
  const auto inside = [size](const Buffer& b) {
    return b.offset() <= size && b.bytes() <= size - b.offset();
  };
  const ModelTable& told = model->table_;
  progress.Phase("import", size);
  GLYD_RETURN_IF_ERROR(ParallelFor(told.packs_size(), threads, progress, [&](size_t, size_t i) {
    const Pack& p = told.packs(static_cast<int>(i));
    if (!inside(p.data()) || !inside(p.side()) || !inside(p.base()))
      return absl::DataLossError(
          absl::StrCat("pack \"", Printable(p.name()), "\" leaves its block"));
    const absl::Status s = model->CheckBytes(device, p);
    progress.Advance(p.data().bytes() + p.side().bytes() + p.base().bytes());
    return s;
  }));
  for (const glyd::v1::Tensor& t : model->table_.tensors())
    if (!inside(t.buffer()))
      return absl::DataLossError(
          absl::StrCat("tensor \"", Printable(t.name()), "\" leaves its block"));
  model->Index();
  return model;
}

absl::Status ResidentModel::HashPack(Device& device, const Pack& p,
                                     std::vector<Mismatch>* bad) const {
  const PackView view = View(p);
  GLYD_RETURN_IF_ERROR(CheckBytes(device, p));
  uint64_t row = 0;
  for (const glyd::v1::Member& m : p.members()) {
    // A merged group's members are O rows each; an experts' weight is all rows.
    const uint64_t count = p.experts() > 0 ? p.rows() : m.shape_size() == 0 ? 0 : m.shape(0);
    if (count == 0 || count % kStepRows != 0 || count > p.rows() - row)
      return absl::DataLossError(
          absl::StrCat("tensor \"", Printable(m.name()), "\": ", count, " rows do not fit"));
    Sha256 hash;
    GLYD_RETURN_IF_ERROR(ReadPackedTensor(
        p.cols(), {row, count, p.transposed() ? p.experts() : 0},
        [&](uint64_t row0, uint64_t rows, uint16_t* out) {
          return device.DecodeRows(view, row0, rows, out);
        },
        [&hash](absl::Span<const uint8_t> bytes) { hash.Update(bytes.data(), bytes.size()); }));
    Compare(m.name(), hash, m.sha256(), bad);
    row += count;
  }
  return absl::OkStatus();
}

absl::Status ResidentModel::HashTensor(Device& device, const glyd::v1::Tensor& t,
                                       std::vector<Mismatch>* bad) const {
  Sha256 hash;
  std::vector<uint8_t> chunk(std::min<uint64_t>(t.buffer().bytes(), size_t{1} << 20));
  for (uint64_t at = 0; at < t.buffer().bytes(); at += chunk.size()) {
    const uint64_t n = std::min<uint64_t>(chunk.size(), t.buffer().bytes() - at);
    GLYD_RETURN_IF_ERROR(device.CopyOut(*memory_, t.buffer().offset() + at, chunk.data(), n));
    hash.Update(chunk.data(), n);
  }
  Compare(t.name(), hash, t.sha256(), bad);
  return absl::OkStatus();
}

absl::Status ResidentModel::HashItem(Device& device, size_t item,
                                     std::vector<Mismatch>* bad) const {
  const auto packs = static_cast<size_t>(table_.packs_size());
  return item < packs ? HashPack(device, table_.packs(static_cast<int>(item)), bad)
                      : HashTensor(device, table_.tensors(static_cast<int>(item - packs)), bad);
}

absl::StatusOr<std::vector<std::string>> ResidentModel::Verify(Device& device, int threads,
                                                               Progress& progress) const {
  const auto packs = static_cast<size_t>(table_.packs_size());
  std::vector<uint64_t> bytes;
  for (const Pack& p : table_.packs())
    bytes.push_back(p.data().bytes() + p.side().bytes() + p.base().bytes());
  for (const glyd::v1::Tensor& t : table_.tensors()) bytes.push_back(t.buffer().bytes());
  progress.Phase("verify", std::accumulate(bytes.begin(), bytes.end(), uint64_t{0}));
  absl::Mutex mu;
  std::vector<std::string> bad;
  GLYD_RETURN_IF_ERROR(
      ParallelFor(bytes.size(), threads, progress, [&](size_t, size_t i) -> absl::Status {
        progress.Item(i < packs ? table_.packs(static_cast<int>(i)).name()
                                : table_.tensors(static_cast<int>(i - packs)).name());
        std::vector<Mismatch> here;
        GLYD_RETURN_IF_ERROR(HashItem(device, i, &here));
        progress.Advance(bytes[i]);
        absl::MutexLock lock(&mu);
        for (Mismatch& m : here) bad.push_back(std::move(m.tensor));
        return absl::OkStatus();
      }));
  std::sort(bad.begin(), bad.end());
  return bad;
}

absl::StatusOr<PackView> ResidentModel::FindPack(const std::string& name) const {
  const auto it = packs_.find(name);
  if (it == packs_.end())
    return WithReason(
        absl::NotFoundError(absl::StrCat("no pack \"", Printable(name), "\" among the model's ",
                                         packs_.size(), " (glyd show lists them)")),
        "NO_PACK");
  return View(table_.packs(it->second));
}

absl::StatusOr<const uint16_t*> ResidentModel::FindBias(Device& device, const std::string& name) {
  const auto have = biases_.find(name);
  if (have != biases_.end()) return have->second.data();
  const auto it = packs_.find(name);
  if (it == packs_.end()) return absl::NotFoundError("no such pack");
  const Pack& p = table_.packs(it->second);
  std::vector<uint16_t> bias;
  for (const glyd::v1::Member& m : p.members()) {
    std::string of = m.name();
    const size_t dot = of.rfind('.');
    of = absl::StrCat(of.substr(0, dot == std::string::npos ? of.size() : dot), ".bias");
    const auto t = tensors_.find(of);
    if (p.experts() > 0 || t == tensors_.end())
      return WithReason(absl::FailedPreconditionError(absl::StrCat("pack \"", Printable(name),
                                                                   "\" has no bias in this save")),
                        "NO_BIAS");
    const glyd::v1::Tensor& tensor = table_.tensors(t->second);
    if (tensor.dtype() != "BF16" || m.shape_size() == 0 ||
        tensor.buffer().bytes() != m.shape(0) * sizeof(uint16_t))
      return absl::FailedPreconditionError(absl::StrCat("bias \"", Printable(of),
                                                        "\": ", tensor.buffer().bytes(),
                                                        " bytes for ", m.shape(0), " rows"));
    const size_t at = bias.size();
    bias.resize(at + m.shape(0));
    GLYD_RETURN_IF_ERROR(device.CopyOut(*memory_, tensor.buffer().offset(), bias.data() + at,
                                        tensor.buffer().bytes()));
  }
  return (biases_[name] = std::move(bias)).data();
}

absl::StatusOr<UniqueFd> ResidentModel::ExportTable(uint64_t* bytes) const {
  const std::string data = table_.SerializeAsString();
  UniqueFd fd(::memfd_create("glyd-table", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return ErrnoStatus(errno, "table");
  GLYD_RETURN_IF_ERROR(WriteFull(fd.get(), data.data(), data.size(), "table"));
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0)
    return ErrnoStatus(errno, "sealing the table");
  *bytes = data.size();
  return fd;
}

}  // namespace glyd
