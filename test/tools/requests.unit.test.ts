import { describe, expect, test } from '@jest/globals'
import { type Definition, definitionOf } from '../../models/tools/definitions.ts'
import { inputSchemaOf, operationIdsIn, operationIn } from '../../models/tools/openapi.ts'
import { requestOfOperation, requestOfTemplate } from '../../models/tools/requests.ts'

// What a call's arguments become as a request of HTTP.

const template = (more: object = {}): Definition =>
  definitionOf({
    kind: 'http',
    method: 'GET',
    url: 'https://api.example/users/{id}?q={q}',
    headers: { Accept: 'a/b' },
    ...more,
  })

describe('the request of a template', () => {
  test('has its arguments in their places, and the others in the query of a GET', () => {
    const given = { id: 'a/b ?', q: 'x&y', tags: ['1', '2'], none: null }
    expect(requestOfTemplate(template(), given)).toEqual({
      method: 'GET',
      url: 'https://api.example/users/a%2Fb%20%3F?q=x%26y&tags=1&tags=2',
      headers: { Accept: 'a/b' },
    })
  })

  test('has what its template does not name as the body of a POST', () => {
    expect(requestOfTemplate(template({ method: 'POST' }), { id: 7, name: 'Ann' })).toMatchObject({
      url: 'https://api.example/users/7?q=',
      headers: { 'content-type': 'application/json' },
      body: '{"name":"Ann"}',
    })
  })

  test.each(['..', '.', '', undefined])('leads to no other path by the argument %j', (id) => {
    expect(() => requestOfTemplate(template(), { id })).toThrow(
      expect.objectContaining({ code: 'arguments_invalid' }),
    )
  })
})

const document = {
  openapi: '3.1.0',
  servers: [{ url: 'https://{region}.api.example/v1/', variables: { region: { default: 'eu' } } }],
  paths: {
    '/pets/{petId}': {
      parameters: [{ $ref: '#/components/parameters/petId' }],
      get: {
        operationId: 'showPet',
        summary: 'Show a pet',
        parameters: [
          {
            name: 'fields',
            in: 'query',
            explode: false,
            schema: { type: 'array', items: { type: 'string' } },
          },
          { name: 'page', in: 'query', style: 'deepObject', schema: { type: 'object' } },
          { name: 'X-Trace', in: 'header', schema: { type: 'string' } },
        ],
      },
      put: {
        operationId: 'changePet',
        requestBody: {
          required: true,
          content: { 'application/json': { schema: { $ref: '#/components/schemas/Pet' } } },
        },
      },
      delete: { operationId: 'upload', requestBody: { content: { 'multipart/form-data': {} } } },
    },
  },
  components: {
    parameters: { petId: { name: 'petId', in: 'path', required: true, schema: { type: 'string' } } },
    schemas: {
      Pet: {
        type: 'object',
        properties: {
          name: { type: 'string' },
          friends: { type: 'array', items: { $ref: '#/components/schemas/Pet' } },
        },
      },
    },
  },
}

describe('the request of an operation', () => {
  test('has each parameter where the document says', () => {
    const given = { petId: '7', fields: ['a', 'b'], page: { n: 2 }, 'X-Trace': 't' }
    expect(requestOfOperation(document, null, 'showPet', given)).toEqual({
      method: 'GET',
      url: 'https://eu.api.example/v1/pets/7?fields=a%2Cb&page%5Bn%5D=2',
      headers: { 'X-Trace': 't' },
    })
  })

  test('has its body as JSON', () => {
    expect(
      requestOfOperation(document, null, 'changePet', { petId: '7', body: { name: 'Rex' } }),
    ).toMatchObject({
      method: 'PUT',
      headers: { 'content-type': 'application/json' },
      body: '{"name":"Rex"}',
    })
  })

  test('goes to a server that is relative to its document', () => {
    const { url } = requestOfOperation(
      { ...document, servers: [{ url: '/v2' }] },
      'https://api.example/docs/openapi.json',
      'showPet',
      { petId: '7' },
    )
    expect(url).toBe('https://api.example/v2/pets/7')
  })

  test.each([
    ['showPet', {}, 'arguments_invalid'],
    ['showPet', { petId: '..' }, 'arguments_invalid'],
    ['showPet', { petId: '7', other: 1 }, 'arguments_invalid'],
    ['changePet', { petId: '7' }, 'arguments_invalid'],
    ['upload', { petId: '7' }, 'body_not_supported'],
    ['none', {}, 'tool_missing'],
  ])('%s of %j is refused: %s', (id, given, code) => {
    expect(() => requestOfOperation(document, null, id, given)).toThrow(expect.objectContaining({ code }))
  })
})

test('an operation’s arguments have a schema without references, also of a document that goes round', () => {
  expect(operationIdsIn(document)).toEqual(['showPet', 'changePet', 'upload'])
  const schema = inputSchemaOf(document, operationIn(document, 'changePet'))
  expect(schema).toMatchObject({
    properties: { petId: { type: 'string' }, body: { properties: { name: { type: 'string' } } } },
    required: ['petId', 'body'],
  })
  expect(JSON.stringify(schema)).not.toContain('$ref')
  const many = Object.fromEntries(
    Array.from({ length: 50 }, (_, at) => [`f${at}`, { $ref: '#/components/schemas/Fan' }]),
  )
  const fan = structuredClone(document)
  Object.assign(fan.components.schemas, { Fan: { type: 'object', properties: many } })
  Object.assign(fan.components.schemas.Pet, { properties: many })
  expect(JSON.stringify(inputSchemaOf(fan, operationIn(fan, 'changePet'))).length).toBeLessThan(256 * 1024)
})
