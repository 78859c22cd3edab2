// A scan, live projections of it, one volume committed, the rest discarded; with the generated stubs as they are.
//
//	octavo-go-example [ADDRESS]     default $OCTAVO_ADDRESS or 127.0.0.1:50051
//
// Build: GO111MODULE=off, Debian's golang-google-grpc-dev and stubs of protoc-gen-go and protoc-gen-go-grpc; see CMakeLists.txt
// beside this file.
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	octavo "octavo/v1"
)

const mostBytes = 64 << 20 // of a message

// frames calls each with every complete frame: large ones travel in several messages.
func frames(stream octavo.StreamService_SubscribeClient, each func(head *octavo.Frame, data []byte) error) error {
	var head *octavo.Frame
	var data []byte
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if part.GetFrame() != nil {
			head, data = part.GetFrame(), make([]byte, part.GetTotalBytes())
		}
		copy(data[part.GetOffset():], part.GetData())
		if part.GetOffset()+uint64(len(part.GetData())) < part.GetTotalBytes() {
			continue
		}
		if err := each(head, data); err != nil {
			return err
		}
	}
}

// words are the elements of U16 arrays, which dB of integer samples are unless the scan asks for something else.
func words(dtype octavo.Dtype, data []byte) ([]uint16, error) {
	if dtype != octavo.Dtype_DTYPE_U16 {
		return nil, fmt.Errorf("elements are %v; this example reads U16", dtype)
	}
	values := make([]uint16, len(data)/2)
	for i := range values {
		values[i] = binary.LittleEndian.Uint16(data[2*i:])
	}
	return values, nil
}

// read returns the voxels of a volume, [y, x, z] in C order.
func read(ctx context.Context, volumes octavo.VolumeServiceClient, name string) ([]int64, []uint16, error) {
	stream, err := volumes.ReadVolume(ctx, &octavo.ReadVolumeRequest{Name: name})
	if err != nil {
		return nil, nil, err
	}
	var shape []int64
	var dtype octavo.Dtype
	var data []byte
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			voxels, err := words(dtype, data)
			return shape, voxels, err
		}
		if err != nil {
			return nil, nil, err
		}
		if part.GetVolume() != nil {
			shape, dtype, data = part.GetShape(), part.GetVolume().GetDtype(), make([]byte, part.GetTotalBytes())
		}
		copy(data[part.GetOffset():], part.GetData())
	}
}

// commit writes a held volume to storage and returns where it went. The call answers when the commit
// has ended, and the operation in the answer says how.
func commit(ctx context.Context, volumes octavo.VolumeServiceClient, name, destination string) (*octavo.CommitResult, error) {
	answer, err := volumes.CommitVolume(ctx, &octavo.CommitVolumeRequest{
		Name: name, Options: &octavo.CommitOptions{Destination: destination, Format: octavo.Format_FORMAT_NPY}})
	if err != nil {
		return nil, err
	}
	operation := answer.GetOperation()
	if !operation.GetDone() {
		return nil, fmt.Errorf("%s is still at work", operation.GetName())
	}
	if operation.GetError() != nil {
		return nil, status.ErrorProto(operation.GetError())
	}
	return operation.GetCommit(), nil
}

// reason returns the machine-readable part of an error: google.rpc.ErrorInfo travels in gRPC's own
// error details.
func reason(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

func say(what map[string]interface{}) {
	line, _ := json.Marshal(what)
	fmt.Println(string(line))
}

func run(address string) error {
	connection, err := grpc.Dial(address, grpc.WithInsecure(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(mostBytes)))
	if err != nil {
		return err
	}
	defer connection.Close()
	scans, volumes := octavo.NewScanServiceClient(connection), octavo.NewVolumeServiceClient(connection)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	submitted, err := scans.SubmitScan(ctx, &octavo.SubmitScanRequest{Spec: &octavo.ScanSpec{
		Title:       "go",
		Source:      &octavo.ScanSpec_Simulated{Simulated: &octavo.Simulated{Seed: 1}},
		Acquisition: &octavo.Acquisition{SamplesPerRecord: 512, RecordRateHz: 20000},
		Pattern: &octavo.Pattern{Pattern: &octavo.Pattern_Raster{
			Raster: &octavo.Raster{AscansPerBscan: 64, BscansPerVolume: 32, Volumes: 3}}},
	}})
	if err != nil {
		return err
	}
	scan := submitted.GetScan()
	stream, err := octavo.NewStreamServiceClient(connection).Subscribe(ctx, &octavo.SubscribeRequest{
		Parent: scan.GetName(), Products: []octavo.Product{octavo.Product_PRODUCT_MIP}})
	if err != nil {
		return err
	}
	err = frames(stream, func(head *octavo.Frame, data []byte) error {
		values, err := words(head.GetDtype(), data)
		if err != nil {
			return err
		}
		var brightest uint16
		for _, value := range values {
			if value > brightest {
				brightest = value
			}
		}
		say(map[string]interface{}{"frame": head.GetSequence(), "dropped": head.GetDroppedBefore(), "shape": head.GetShape(), "brightest": brightest})
		return nil
	})
	if err != nil {
		return err
	}
	got, err := scans.GetScan(ctx, &octavo.GetScanRequest{Name: scan.GetName()})
	if err != nil {
		return err
	}
	ended := got.GetScan()
	say(map[string]interface{}{"scan": ended.GetName(), "state": ended.GetState().String(), "volumes": ended.GetVolumesDone()})

	// A list comes in pages; the token of one leads to the next.
	request := &octavo.ListVolumesRequest{Parent: scan.GetName(), Filter: "complete = true", OrderBy: "index"}
	var list []*octavo.Volume
	for {
		page, err := volumes.ListVolumes(ctx, request)
		if err != nil {
			return err
		}
		list = append(list, page.GetVolumes()...)
		if request.PageToken = page.GetNextPageToken(); request.PageToken == "" {
			break
		}
	}
	first := list[0].GetName()
	// Operations on the device, in sequence: here one, the en face MIP. The call returns when it is done.
	made, err := volumes.DeriveVolume(ctx, &octavo.DeriveVolumeRequest{Name: first, Operations: []*octavo.VolumeOperation{{
		Operation: &octavo.VolumeOperation_Array{Array: &octavo.ArrayOperation{
			Operation: &octavo.ArrayOperation_Mip{Mip: &octavo.ArrayOperation_ProjectParameters{Axis: proto.Int64(2)}}}}}}})
	if err != nil {
		return err
	}
	if failed := made.GetOperation().GetError(); failed != nil {
		return status.ErrorProto(failed)
	}
	derived := made.GetVolume()
	mipShape, mip, err := read(ctx, volumes, derived.GetName())
	if err != nil {
		return err
	}
	mipSum := uint64(0)
	for _, value := range mip {
		mipSum += uint64(value)
	}
	say(map[string]interface{}{"mip": derived.GetName(), "shape": mipShape, "sum": mipSum})
	if _, err := volumes.DiscardVolume(ctx, &octavo.DiscardVolumeRequest{Name: derived.GetName()}); err != nil {
		return err
	}
	shape, voxels, err := read(ctx, volumes, first)
	if err != nil {
		return err
	}
	sum := uint64(0)
	for _, voxel := range voxels {
		sum += uint64(voxel)
	}
	say(map[string]interface{}{"volume": first, "shape": shape, "sum": sum})
	result, err := commit(ctx, volumes, first, "{title}_{index:05}")
	if err != nil {
		return err
	}
	say(map[string]interface{}{"committed": result.GetPath(), "checksum": result.GetChecksum()})
	for _, volume := range list[1:] {
		if _, err := volumes.DiscardVolume(ctx, &octavo.DiscardVolumeRequest{Name: volume.GetName()}); err != nil {
			return err
		}
	}
	if _, _, err = read(ctx, volumes, list[1].GetName()); err != nil {
		say(map[string]interface{}{"error": status.Code(err).String(), "reason": reason(err), "message": status.Convert(err).Message()})
	}
	return nil
}

func main() {
	address := os.Getenv("OCTAVO_ADDRESS")
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	if address == "" {
		address = "127.0.0.1:50051"
	}
	if err := run(address); err != nil {
		fmt.Fprintln(os.Stderr, "octavo-go-example:", err)
		os.Exit(1)
	}
}
