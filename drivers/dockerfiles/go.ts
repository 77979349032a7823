import {
  type BaseImages,
  executed,
  type Found,
  type Generated,
  has,
  lines,
  type Nothing,
  procfile,
} from './dockerfile.ts'

const modules = '--mount=type=cache,target=/go/pkg/mod'
const objects = '--mount=type=cache,target=/root/.cache/go-build'

/** Go by its go.mod: one program, without C. */
export function forGo(found: Found, images: BaseImages): Generated | Nothing {
  const { go = '', run = '' } = images
  const main = mainOf(found)
  if ('nothing' in main) return main
  const web = procfile(found)
  const dependencies = dependenciesOf(found)
  const text = lines(
    `FROM ${go} AS build`,
    'WORKDIR /src',
    ...dependencies.copy,
    `RUN ${modules} ${objects} CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o /out/app ${main.folder}`,
    '',
    `FROM ${run}`,
    'WORKDIR /app',
    'COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt',
    'COPY --from=build /out/app /usr/local/bin/app',
    'COPY . .',
    web ? executed(web) : 'CMD ["app"]',
  )
  const reasons = [
    'it has a go.mod',
    ...dependencies.reason,
    main.reason,
    ...(web ? [`Procfile: ${web}`] : []),
  ]
  return { kind: 'Go', reasons, text, images: [go, run] }
}

/** How the files and the modules that they need come into the stage that builds. */
function dependenciesOf(found: Found): { copy: string[]; reason: string[] } {
  const download = `RUN ${modules} go mod download`
  if (has(found, 'vendor/modules.txt'))
    return { copy: ['COPY . .'], reason: ['vendor/modules.txt: its modules are in vendor/'] }
  // Also a download needs the modules that go.mod has beside it.
  if (/=>\s*\.{1,2}\//.test(found.texts['go.mod'] ?? ''))
    return { copy: ['COPY . .', download], reason: ['go.mod replaces a module with one of its folders'] }
  const sums = has(found, 'go.sum') ? ' go.sum' : ''
  return { copy: [`COPY go.mod${sums} ./`, download, 'COPY . .'], reason: [] }
}

function mainOf({ paths }: Found): { folder: string; reason: string } | Nothing {
  if (paths.includes('main.go')) return { folder: '.', reason: 'main.go: its folder is the program' }
  const programs = paths.flatMap((path) => /^cmd\/([\w.-]+)\/main\.go$/.exec(path)?.[1] ?? [])
  if (programs.length === 1)
    return { folder: `./cmd/${programs[0]}`, reason: `cmd/${programs[0]}: the only program below cmd/` }
  if (programs.length > 1)
    return {
      nothing: `it has several Go programs (cmd/${programs.join(', cmd/')}): add a Dockerfile that says which`,
    }
  if (paths.some((path) => /^[^/]+\.go$/.test(path)))
    return { folder: '.', reason: 'it has Go files and no cmd/' }
  return { nothing: 'it has a go.mod, but neither main.go nor cmd/NAME/main.go' }
}
