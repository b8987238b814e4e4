# SGLang with Steplane's plugin, which measures each of its steps: docker build -f deploy/sglang.Dockerfile -t steplane-sglang .
ARG SGLANG=v0.5.23
FROM lmsysorg/sglang:${SGLANG}
COPY . /tmp/steplane
# Nothing that the engine has is changed: the plugin brings no dependency that SGLang does not have.
RUN pip install --no-cache-dir '/tmp/steplane[replica]' && rm -rf /tmp/steplane
EXPOSE 30000 31000
ENTRYPOINT ["steplane", "replica", "launch"]
CMD ["--pool", "interactive", "--", "sglang", "serve", "--host", "0.0.0.0", "--port", "30000"]
