// Shows the OpenAPI document of this very server; nothing is fetched from elsewhere.
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#api",
  deepLinking: true,
  displayRequestDuration: true,
  validatorUrl: null,
});
