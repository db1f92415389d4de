// Runs scenarios side by side and prints one JSON object: name -> what it gave, or {error} when it threw.

export async function run(scenarios) {
  const results = await Promise.all(
    Object.entries(scenarios).map(async ([name, scenario]) => {
      try {
        return [name, (await scenario()) ?? null];
      } catch (error) {
        return [name, { error: error?.name, message: String(error?.message ?? error), status: error?.status }];
      }
    }),
  );
  console.log(JSON.stringify(Object.fromEntries(results)));
}

export async function all(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return parts;
}

// The weather tool that a client runs itself.
export const PARAMETERS = {
  type: "object",
  properties: { location: { type: "string" } },
  required: ["location"],
  additionalProperties: false,
};
export const QUESTION = "What is the weather?";
