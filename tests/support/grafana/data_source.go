// Command data_source runs the back end of Grafana's Prometheus data source, as Grafana does, against one server.
//
// It reads a Request as JSON from standard input, and writes an Answer as JSON to standard output.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/backend"
	"github.com/grafana/grafana/pkg/promlib"
)

// Request has the settings of the data source as they are provisioned, and what to ask it for.
type Request struct {
	URL            string            `json:"url"`
	JSONData       json.RawMessage   `json:"jsonData"`
	SecureJSONData map[string]string `json:"secureJsonData"`
	FromMS         int64             `json:"fromMs"`
	ToMS           int64             `json:"toMs"`
	IntervalMS     int64             `json:"intervalMs"`
	MaxDataPoints  int64             `json:"maxDataPoints"`
	// Queries are the models of panels' targets, by refId.
	Queries   map[string]json.RawMessage `json:"queries"`
	Resources []Resource                 `json:"resources"`
}

// Resource is a call of Grafana's query editor and of its template variables.
type Resource struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	Query  string `json:"query"`
	Body   string `json:"body"`
}

// Answer has what Grafana's front end is sent.
type Answer struct {
	Health    Health                     `json:"health"`
	Queries   *backend.QueryDataResponse `json:"queries"`
	Resources []ResourceAnswer           `json:"resources"`
}

// Health is the result of "Save & test".
type Health struct {
	Status  string          `json:"status"`
	Message string          `json:"message"`
	Details json.RawMessage `json:"details"`
}

// ResourceAnswer is what the server answered.
type ResourceAnswer struct {
	Status int             `json:"status"`
	Body   json.RawMessage `json:"body"`
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var request Request
	if err := json.NewDecoder(os.Stdin).Decode(&request); err != nil {
		return err
	}
	service := promlib.NewService(nil, backend.NewLoggerWith("logger", "data_source"), nil)
	settings := backend.PluginContext{DataSourceInstanceSettings: &backend.DataSourceInstanceSettings{
		UID:                     "tested",
		Type:                    "prometheus",
		URL:                     request.URL,
		JSONData:                request.JSONData,
		DecryptedSecureJSONData: request.SecureJSONData,
	}}
	var answer Answer
	var err error
	if answer.Health, err = checkHealth(ctx, service, settings); err != nil {
		return err
	}
	if len(request.Queries) > 0 {
		if answer.Queries, err = service.QueryData(ctx, queryRequest(request, settings)); err != nil {
			return err
		}
	}
	for _, resource := range request.Resources {
		if err = callResource(ctx, service, settings, resource, &answer); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(answer)
}

func checkHealth(ctx context.Context, service *promlib.Service, settings backend.PluginContext) (Health, error) {
	result, err := service.CheckHealth(ctx, &backend.CheckHealthRequest{PluginContext: settings})
	if err != nil {
		return Health{}, err
	}
	return Health{Status: result.Status.String(), Message: result.Message, Details: result.JSONDetails}, nil
}

func queryRequest(request Request, settings backend.PluginContext) *backend.QueryDataRequest {
	made := &backend.QueryDataRequest{PluginContext: settings}
	for refID, model := range request.Queries {
		made.Queries = append(made.Queries, backend.DataQuery{
			RefID:         refID,
			MaxDataPoints: request.MaxDataPoints,
			Interval:      time.Duration(request.IntervalMS) * time.Millisecond,
			TimeRange:     backend.TimeRange{From: time.UnixMilli(request.FromMS), To: time.UnixMilli(request.ToMS)},
			JSON:          model,
		})
	}
	return made
}

func callResource(
	ctx context.Context, service *promlib.Service, settings backend.PluginContext, resource Resource, answer *Answer,
) error {
	url := resource.Path
	if resource.Query != "" {
		url += "?" + resource.Query
	}
	call := &backend.CallResourceRequest{
		PluginContext: settings,
		Method:        resource.Method,
		Path:          resource.Path,
		URL:           url,
		Body:          []byte(resource.Body),
		Headers:       map[string][]string{"Content-Type": {"application/x-www-form-urlencoded"}},
	}
	sender := backend.CallResourceResponseSenderFunc(func(response *backend.CallResourceResponse) error {
		answer.Resources = append(answer.Resources, ResourceAnswer{Status: response.Status, Body: response.Body})
		return nil
	})
	return service.CallResource(ctx, call, sender)
}
